"use strict";
// Puts the page together: asks for the data once a second while it is looked at, and for the tree
// when something has changed.

const POLL_MS = 1000;
const MAX_WAIT_MS = 30000;
const TREE_MS = 2000;
const MAX_EDGES = 500;

class LivePage {
  constructor() {
    this.notice = byId("notice");
    this.tryNow = byId("try-now");
    this.tiles = new Tiles(byId("tiles"));
    this.requests = new Requests(byId("request-list"), byId("requests-note"));
    this.errors = new Errors(byId("error-rows"), byId("errors-note"), byId("errors-region"));
    this.tree = new Tree({
      picture: byId("tree"), note: byId("tree-note"), detail: byId("tree-detail"),
      all: byId("tree-all"), keys: byId("tree-keys"), legend: byId("tree-legend"),
      whole: byId("tree-as-table"), table: byId("tree-rows"),
    });
    this.playground = new Playground({
      reveal: (traceId) => this.requests.reveal(traceId), changed: () => this.onAnswer(),
    });
    this.startedAt = null;
    this.latest = 0;
    this.treeOf = null;
    this.treeAtMs = -Infinity;
    this.cacheNow = "";
    this.numFailures = 0;
    this.timer = null;
    this.isAsking = false;
    this.mayWatch = true;
    this.hasModels = false;
    this.addHandlers();
  }

  addHandlers() {
    document.addEventListener("visibilitychange", () => this.poll());
    this.tryNow.addEventListener("click", () => this.poll());
    byId("tree-refresh").addEventListener("click", () => this.askTree());
    byId("key-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.useKey(byId("key").value.trim());
    });
    byId("forget-key").addEventListener("click", () => this.useKey(""));
  }

  useKey(key) {
    keyStore.key = key;
    byId("key").value = "";
    byId("forget-key").hidden = !key;
    this.mayWatch = true;
    this.hasModels = false;
    this.startOver();
    this.poll();
  }

  startOver() {
    this.latest = 0;
    this.treeOf = null;
    this.requests.forget();
    this.errors.forget();
  }

  onAnswer() {
    this.treeOf = null;
    this.poll();
  }

  // One question at a time; none while nobody looks.
  async poll() {
    clearTimeout(this.timer);
    if (document.hidden || this.isAsking) return;
    this.isAsking = true;
    try {
      await this.askAll();
      this.numFailures = 0;
      this.tell("");
      byId("key-form").hidden = this.mayWatch;
      if (this.mayWatch) this.again(POLL_MS);
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      this.onFailure(error);
    } finally {
      this.isAsking = false;
    }
  }

  async askAll() {
    if (this.mayWatch) await this.askData();
    if (!this.hasModels) {
      await this.playground.loadModels();
      this.hasModels = true;
    }
    if (this.treeIsOld()) await this.askTree();
  }

  async askData() {
    let state;
    try {
      state = await askJson(`ui/data?since=${this.latest}`);
    } catch (error) {
      if (error.status !== 403) throw error;
      this.mayWatch = false;
      const rights = "This key can use the playground and see its own part of the cache.";
      this.wantKey(`${error.message} ${rights}`);
      return;
    }
    if (state.server.started_at !== this.startedAt && this.latest) {
      this.startOver();
      state = await askJson("ui/data");
    }
    this.startedAt = state.server.started_at;
    this.latest = state.latest;
    this.show(state);
  }

  show(state) {
    say(byId("server-line"), serverLine(state));
    this.tiles.show(state);
    this.requests.show(state);
    this.errors.show(state.errors);
    showTiers(byId("tiers"), byId("tiers-title"), state.tiers);
    this.cacheNow = JSON.stringify([state.latest, state.pages]);
  }

  // Looking at the tree takes some of the engine's time: only after something has changed.
  treeIsOld() {
    return this.treeOf !== this.cacheNow && performance.now() - this.treeAtMs >= TREE_MS;
  }

  async askTree() {
    this.treeAtMs = performance.now();
    const seen = this.cacheNow;
    try {
      this.tree.show(await askJson(`v1/cache?max_nodes=${MAX_EDGES}`));
      this.treeOf = seen;
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      if (error.status === 401) throw error;
      say(byId("tree-note"), `The tree cannot be shown: ${error.message}`);
    }
  }

  onFailure(error) {
    if (error.status === 401) {
      const isWrong = Boolean(keyStore.key);
      keyStore.key = "";
      byId("forget-key").hidden = true;
      this.wantKey(
        isWrong ? "The server does not know this key." : "This server wants an API key.",
      );
      return;
    }
    this.numFailures++;
    const waitMs = Math.min(POLL_MS * 2 ** this.numFailures, MAX_WAIT_MS);
    this.tell(`${error.message} Trying again in ${duration(waitMs / 1000)}.`);
    this.again(waitMs);
  }

  wantKey(message) {
    const form = byId("key-form");
    const isNew = form.hidden;
    form.hidden = false;
    say(byId("key-message"), message);
    byId("forget-key").hidden = !keyStore.key;
    this.tell("");
    say(byId("server-line"), "What the server does is shown to an admin key.");
    if (isNew) byId("key").focus();
  }

  tell(message) {
    say(this.notice, message);
    this.tryNow.hidden = !message;
  }

  again(waitMs) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.poll(), waitMs);
  }
}

new LivePage().poll();
