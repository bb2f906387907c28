"use strict";
// The playground: a conversation with the model, its request made of the fields around it.

class Playground {
  // `reveal(traceId)` opens a request in the list, `changed()` is told after each answer.
  constructor({ reveal, changed }) {
    this.fields = Object.fromEntries([
      "system", "model", "temperature", "max-tokens", "schema", "tools", "tool-choice", "prompt",
      "send", "stop", "new-chat", "transcript",
    ].map((id) => [id, byId(id)]));
    this.turns = [];
    this.running = null;
    this.reveal = reveal;
    this.changed = changed;
    byId("chat-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    this.fields.prompt.addEventListener("keydown", (event) => {
      const isSent = event.key === "Enter" && (event.ctrlKey || event.metaKey);
      if (isSent) byId("chat-form").requestSubmit();
    });
    this.fields.stop.addEventListener("click", () => this.running && this.running.abort());
    this.fields["new-chat"].addEventListener("click", () => this.forget());
  }

  async loadModels() {
    const { data } = await askJson("v1/models");
    const select = this.fields.model;
    const before = select.value;
    select.replaceChildren(...data.map(({ id }) => element("option", { value: id }, id)));
    if (data.some(({ id }) => id === before)) select.value = before;
  }

  forget() {
    if (this.running) this.running.abort();
    this.turns = [];
    this.fields.transcript.replaceChildren();
    this.fields.prompt.focus();
  }

  // What the request says, or null where a box does not hold what it should.
  request(prompt) {
    const { fields } = this;
    const schema = jsonOf(fields.schema, "an object", isObject);
    const tools = jsonOf(fields.tools, "a list", Array.isArray);
    if (schema === undefined || tools === undefined) return null;
    const system = fields.system.value.trim();
    const body = {
      model: fields.model.value,
      messages: [
        ...(system ? [{ role: "system", content: system }] : []),
        ...this.turns,
        { role: "user", content: prompt },
      ],
      stream: true,
      stream_options: { include_usage: true },
    };
    if (fields.temperature.value) body.temperature = fields.temperature.valueAsNumber;
    if (fields["max-tokens"].value) body.max_tokens = fields["max-tokens"].valueAsNumber;
    if (schema !== null) {
      body.response_format = {
        type: "json_schema", json_schema: { name: "answer", strict: true, schema },
      };
    }
    if (tools !== null) Object.assign(body, { tools, tool_choice: fields["tool-choice"].value });
    return body;
  }

  async send() {
    const { prompt, transcript } = this.fields;
    const said = prompt.value;
    const turns = this.turns;
    const body = this.running ? null : this.request(said);
    if (body === null) return;
    transcript.append(element(
      "article", { class: "turn user" },
      element("h3", {}, "You"), element("p", { class: "said" }, said),
    ));
    const view = new AnswerView(transcript, this.reveal);
    const answer = new Answer(body);
    prompt.value = "";
    this.setRunning(new AbortController());
    const problem = await this.run(answer, view);
    this.setRunning(null);
    view.end(answer, problem);
    scrollToEnd(transcript);
    this.changed();
    // A conversation goes on with what was said; what failed can be tried again. It may be over,
    // if a new one was begun meanwhile.
    if (this.turns !== turns) return;
    if (answer.text || answer.calls.length) {
      this.turns = [...body.messages.filter(notSystem), answer.message];
    } else if (problem !== null && !prompt.value) {
      prompt.value = said;
    }
  }

  // What went wrong, in words; null if nothing did.
  async run(answer, view) {
    try {
      await answer.run(this.running.signal, oncePerFrame(() => {
        view.show(answer);
        scrollToEnd(this.fields.transcript);
      }));
      return null;
    } catch (error) {
      if (error.name === "AbortError") return "Stopped.";
      answer.headers ??= error.headers || null;
      return error instanceof ServerError ? problemText(error) : String(error);
    }
  }

  setRunning(controller) {
    const { prompt, send, stop } = this.fields;
    const focused = document.activeElement;
    this.running = controller;
    stop.disabled = controller === null;
    send.disabled = controller !== null;
    // What is disabled loses the focus, which has to be somewhere.
    if (focused === send) stop.focus();
    if (focused === stop) prompt.focus();
  }
}

// A fast model says more than a thousand pieces a second: what is shown follows at the screen's
// pace.
function oncePerFrame(work) {
  let isDue = false;
  return () => {
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(() => {
      isDue = false;
      work();
    });
  };
}

function notSystem(message) {
  return message.role !== "system";
}

function scrollToEnd(node) {
  node.scrollTop = node.scrollHeight;
}

function problemText(error) {
  const place = error.param && `in ${error.param}`;
  const about = [error.status, error.code || error.type, place];
  const request = error.headers && error.headers.get("x-request-id");
  if (request) about.push(`request ${request}`);
  const told = about.filter(Boolean).join(", ");
  return told ? `${error.message} (${told})` : error.message;
}

function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

// The JSON in a box: null where it is empty, undefined where it is none, which the box then says.
function jsonOf(box, kind, isRight) {
  const problem = byId(`${box.id}-error`);
  const found = parsed(box.value, kind, isRight);
  say(problem, found.problem || "");
  box.setAttribute("aria-invalid", Boolean(found.problem));
  if (!found.problem) return found.value;
  box.closest("details").open = true;
  box.focus();
  return undefined;
}

function parsed(text, kind, isRight) {
  if (!text.trim()) return { value: null };
  try {
    const value = JSON.parse(text);
    return isRight(value) ? { value } : { problem: `This has to be ${kind}.` };
  } catch (error) {
    return { problem: `This is no JSON: ${error.message}` };
  }
}
