# syntax=docker/dockerfile:1
# One image for gateway and runtime: `radixgate serve`, `radixgate runtime`, `radixgate health`.
#
#   docker build -t radixgate:cpu .
#   docker build -t radixgate:cuda --build-arg TORCH=cuda .
#
# All that the image adds lies under $ROOT/opt/radixgate and $ROOT/var. ROOT is empty in an image;
# `make image-steps` sets it, to run these steps in a folder.
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm

# ---- builder: has a compiler, leaves an environment and the native step's libraries -------------
FROM ${PYTHON_IMAGE} AS builder
ARG ROOT=
ARG TORCH=cpu
# Where the CPU build of torch is; empty = where pip looks anyway.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ENV PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore \
    PREFIX=${ROOT}/opt/radixgate
WORKDIR ${ROOT}/src
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
RUN python -m venv ${PREFIX}/venv
ENV PATH=${PREFIX}/venv/bin:${PATH}
COPY requirements.lock requirements-torch.lock requirements-cuda.lock ./
RUN --mount=type=cache,target=/root/.cache/pip \
    pip install -q --no-deps --require-hashes -r requirements.lock
# No fallback from one build to the other: the wrong one would be 3 GB larger, or find no GPU.
RUN --mount=type=cache,target=/root/.cache/pip \
    if [ "${TORCH}" = cuda ]; then \
        pip install -q --no-deps --require-hashes -r requirements-cuda.lock && \
        pip install -q --no-deps "$(sed -n 's/^torch==/torch===/p' requirements-torch.lock)"; \
    else \
        pip install -q --no-deps ${TORCH_INDEX:+--index-url ${TORCH_INDEX}} \
            "$(grep '^torch==' requirements-torch.lock)+cpu" && \
        cd "$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch" && \
        rm -rf test include && find bin -type f ! -name torch_shm_manager -delete; \
    fi
COPY . .
RUN pip install -q --no-deps --no-build-isolation .
# For every instruction set, as the image may run on another processor than this one.
RUN python deploy/build_libraries.py ${PREFIX}/native
# What was left out above is not missed.
RUN cd / && python -c "import torch, xgrammar, llguidance, gateway.serve"

# ---- the image -----------------------------------------------------------------------------------
FROM ${PYTHON_IMAGE} AS final
ARG ROOT=
ARG TORCH=cpu
LABEL org.opencontainers.image.title="radixgate" \
      org.opencontainers.image.description="A drop-in OpenAI-compatible server with a radix prefix cache" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV PREFIX=${ROOT}/opt/radixgate
ENV PATH=${PREFIX}/venv/bin:${PATH} \
    HOME=${ROOT}/var/lib/radixgate \
    XDG_CACHE_HOME=${ROOT}/var/cache \
    HF_HOME=${ROOT}/var/cache/radixgate/huggingface \
    PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 \
    RADIXGATE_HOST=0.0.0.0
# torch compiles its kernels for a GPU when they are first needed.
RUN if [ "${TORCH}" = cuda ]; then apt-get update && apt-get install -y --no-install-recommends \
        gcc libc6-dev && rm -rf /var/lib/apt/lists/*; fi
RUN groupadd --gid 10001 radixgate && \
    useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/radixgate \
        --shell /usr/sbin/nologin radixgate
COPY --from=builder ${PREFIX} ${PREFIX}
COPY deploy/fetch_model.py ${PREFIX}/
# A new volume begins with what lies here, and belongs to whom it belongs to here. The link leads
# to the libraries of whichever image is run, so that an old volume does not hide new ones.
RUN mkdir -p ${ROOT}/var/cache/radixgate ${ROOT}/var/lib/radixgate/kv && \
    ln -s ${PREFIX}/native ${ROOT}/var/cache/radixgate/native && \
    chown -R -h 10001:10001 ${ROOT}/var/cache/radixgate ${ROOT}/var/lib/radixgate
WORKDIR ${ROOT}/var/lib/radixgate
USER 10001:10001
EXPOSE 8000 5700
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 CMD ["radixgate", "health"]
ENTRYPOINT ["radixgate"]
CMD ["serve"]
