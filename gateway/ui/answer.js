"use strict";
// One answer of the playground: reads the stream, shows it as it comes, and what it took.

// Of a streamed answer: its text, thoughts and calls so far, and when its deltas came.
class Answer {
  constructor(body) {
    this.body = body;
    this.text = "";
    this.thoughts = "";
    this.calls = [];
    this.usage = null;
    this.finishReason = null;
    this.id = null;
    this.headers = null;
    this.startMs = performance.now();
    this.firstMs = null;
    this.lastMs = null;
    this.numDeltas = 0;
  }

  // Calls `changed` after each piece. Throws ServerError; AbortError where it was stopped.
  async run(signal, changed) {
    const response = await ask("v1/chat/completions", { body: this.body, signal });
    this.headers = response.headers;
    for await (const data of eventData(response)) {
      if (data === "[DONE]") return;
      this.take(JSON.parse(data));
      changed();
    }
    throw new ServerError("The answer broke off.", { headers: this.headers });
  }

  take(event) {
    if (event.error) throw failure(event.error, { status: 200, headers: this.headers });
    this.id = event.id || this.id;
    this.usage = event.usage || this.usage;
    for (const choice of event.choices || []) {
      this.finishReason = choice.finish_reason || this.finishReason;
      this.takeDelta(choice.delta || {});
    }
  }

  takeDelta(delta) {
    const thought = delta.reasoning_content || delta.reasoning || "";
    const calls = delta.tool_calls || [];
    if (!delta.content && !thought && !calls.length) return;
    this.lastMs = performance.now();
    this.firstMs ??= this.lastMs;
    this.numDeltas++;
    this.text += delta.content || "";
    this.thoughts += thought;
    for (const call of calls) this.takeCall(call);
  }

  takeCall({ index = 0, id = null, function: part = {} }) {
    const call = (this.calls[index] ??= { id: null, name: "", arguments: "" });
    call.id = id || call.id;
    call.name += part.name || "";
    call.arguments += part.arguments || "";
  }

  // As a later request repeats it.
  get message() {
    const message = { role: "assistant", content: this.text };
    if (this.calls.length) {
      message.tool_calls = this.calls.map((call) => ({
        id: call.id, type: "function", function: { name: call.name, arguments: call.arguments },
      }));
    }
    return message;
  }

  get traceId() {
    return ((this.headers && this.headers.get("traceparent")) || "").split("-")[1] || null;
  }

  // As the server defines them (TTFT and TPOT), but on this side of the network.
  get facts() {
    const facts = [];
    if (this.firstMs !== null) facts.push(`TTFT ${milliseconds(this.firstMs - this.startMs)}`);
    const count = this.usage ? this.usage.completion_tokens : this.numDeltas;
    const took = this.lastMs - this.firstMs;
    if (count > 1 && took > 0) facts.push(`${((1000 * (count - 1)) / took).toFixed(1)} tokens/s`);
    if (this.usage) {
      const cached = this.usage.prompt_tokens_details?.cached_tokens ?? 0;
      facts.push(
        counted(count, "token"),
        `${whole(cached)} of ${counted(this.usage.prompt_tokens, "prompt token")} cached`,
      );
    } else if (count) {
      facts.push(counted(count, "piece"));
    }
    if (this.finishReason) facts.push(`finish reason ${this.finishReason}`);
    const constraint = this.headers && this.headers.get("x-radixgate-constraint");
    if (constraint) facts.push(`constraint ${constraint}`);
    return facts.join(" · ");
  }
}

// The place of an answer in the conversation.
class AnswerView {
  constructor(list, reveal) {
    this.thoughts = element("p", { class: "thoughts", hidden: "" });
    this.text = element("p", { class: "said" });
    this.calls = element("ul", { class: "calls", hidden: "" });
    this.error = element("p", { class: "error", hidden: "" });
    this.facts = element("p", { class: "muted" });
    this.links = element("p", { class: "muted" });
    this.reveal = reveal;
    this.isOver = false;
    this.item = element(
      "article", { class: "turn assistant", "aria-busy": "true" },
      element("h3", {}, "Model"), this.thoughts, this.text, this.calls, this.error, this.facts,
      this.links,
    );
    list.append(this.item);
  }

  show(answer) {
    if (this.isOver) return;
    say(this.text, answer.text);
    say(this.thoughts, answer.thoughts);
    this.thoughts.hidden = !answer.thoughts;
    say(this.facts, answer.facts);
    this.calls.hidden = !answer.calls.length;
    if (answer.calls.length) {
      this.calls.replaceChildren(...answer.calls.map(
        (call) => element("li", {}, `${call.name}(${call.arguments})`),
      ));
    }
  }

  end(answer, problem) {
    this.show(answer);
    this.isOver = true;
    this.item.removeAttribute("aria-busy");
    if (problem !== null) {
      this.error.hidden = false;
      say(this.error, problem);
    }
    if (answer.traceId === null) return;
    const button = element("button", { type: "button" }, "Show its phases");
    button.addEventListener("click", () => {
      if (!this.reveal(answer.traceId)) say(button, "It is not in the list");
    });
    this.links.replaceChildren("trace ", element("code", {}, answer.traceId), " ", button);
  }
}
