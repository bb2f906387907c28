// openai (npm): chat, its stream and helpers, tools that it runs itself, Responses.

import assert from "node:assert/strict";

import OpenAI from "openai";
import { LengthFinishReasonError } from "openai/core/error";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

import {
  API_KEY,
  BASE_URL,
  CITIES,
  Checks,
  MAX_TOKENS,
  MODEL,
  NAMES,
  PERSON_QUESTION,
  REPEAT_CALL,
  RESULT,
  WEATHER_CALL,
  WEATHER_QUESTION,
  checkWeather,
  collect,
  raised,
} from "./features.mjs";

const checks = new Checks("openai");
const client = new OpenAI({ baseURL: BASE_URL, apiKey: API_KEY, maxRetries: 0 });
const hi = [{ role: "user", content: "hi" }];
const stable = { model: MODEL, temperature: 0, seed: 7, max_tokens: MAX_TOKENS };
const asked = { ...stable, messages: hi };

const Person = z.object({
  name: z.enum(NAMES),
  is_adult: z.boolean(),
  level: z.union([z.literal(1), z.literal(2), z.literal(3)]),
});
const personAsked = {
  ...stable,
  max_tokens: 60,
  messages: [{ role: "user", content: PERSON_QUESTION }],
  response_format: zodResponseFormat(Person, "person"),
};

const weather = {
  name: "get_weather",
  description: "The weather of a city in some days.",
  parameters: {
    type: "object",
    properties: {
      city: { type: "string", enum: CITIES },
      days: { type: "integer", enum: [1, 2, 3] },
    },
    required: ["city", "days"],
    additionalProperties: false,
  },
  strict: true,
};
const toolsAsked = {
  ...stable,
  max_tokens: 60,
  messages: [{ role: "user", content: WEATHER_QUESTION }],
  tools: [{ type: "function", function: weather }],
  tool_choice: "required",
  parallel_tool_calls: false,
};
const responseAsked = { model: MODEL, temperature: 0, max_output_tokens: MAX_TOKENS, input: "hi" };
const responseToolsAsked = {
  ...responseAsked,
  max_output_tokens: 60,
  input: WEATHER_QUESTION,
  tools: [{ type: "function", ...weather }],
  tool_choice: "required",
  parallel_tool_calls: false,
};

const textOf = (chunks) => chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("");

checks.feature("chat", async () => {
  const answer = await client.chat.completions.create(asked);
  const [choice] = answer.choices;
  assert.equal(choice.finish_reason, "stop");
  assert.ok(choice.message.content);
  assert.equal(choice.message.refusal, null);
  assert.ok(answer._request_id);
  const { prompt_tokens, completion_tokens, total_tokens } = answer.usage;
  assert.equal(total_tokens, prompt_tokens + completion_tokens);
});

checks.feature("stream", async () => {
  const whole = await client.chat.completions.create(asked);
  const stream = await client.chat.completions.create({
    ...asked,
    stream: true,
    stream_options: { include_usage: true },
  });
  const chunks = await collect(stream);
  assert.equal(textOf(chunks), whole.choices[0].message.content);
  assert.deepEqual(chunks.at(-1).choices, []);
  assert.equal(chunks.at(-1).usage.completion_tokens, whole.usage.completion_tokens);
  assert.equal(chunks.at(-2).choices[0].finish_reason, "stop");
});

checks.feature("stream helper", async () => {
  const whole = await client.chat.completions.create(asked);
  const runner = client.chat.completions.stream(asked);
  let grown = "";
  runner.on("content", (_, snapshot) => {
    assert.ok(snapshot.startsWith(grown));
    grown = snapshot;
  });
  const final = await runner.finalChatCompletion();
  assert.equal(final.choices[0].message.content, whole.choices[0].message.content);
  assert.equal(grown, whole.choices[0].message.content);
  assert.equal(final.choices[0].message.role, "assistant");
});

checks.feature("logprobs", async () => {
  const answer = await client.chat.completions.create({
    ...asked,
    logprobs: true,
    top_logprobs: 2,
    max_tokens: 5,
  });
  const entries = answer.choices[0].logprobs.content;
  const spelled = new TextDecoder().decode(new Uint8Array(entries.flatMap((entry) => entry.bytes)));
  assert.equal(spelled, answer.choices[0].message.content);
  assert.ok(entries.every((entry) => entry.top_logprobs.length === 2));
});

checks.feature("completions", async () => {
  const prompt = { model: MODEL, prompt: "Once upon", temperature: 0, max_tokens: 5 };
  const whole = await client.completions.create(prompt);
  const chunks = await collect(await client.completions.create({ ...prompt, stream: true }));
  assert.equal(chunks.map((chunk) => chunk.choices[0].text).join(""), whole.choices[0].text);
});

checks.feature("structured output", async () => {
  const answer = await client.chat.completions.parse(personAsked);
  assert.deepEqual(Person.parse(JSON.parse(answer.choices[0].message.content)), answer.choices[0].message.parsed);
  await raised(LengthFinishReasonError, () =>
    client.chat.completions.parse({ ...personAsked, max_tokens: 3 }),
  );
});

checks.feature("partial output", async () => {
  const whole = await client.chat.completions.parse(personAsked);
  const runner = client.chat.completions.stream(personAsked);
  const seen = [];
  runner.on("content.delta", ({ parsed }) => seen.push(parsed));
  const final = await runner.finalChatCompletion();
  assert.deepEqual(final.choices[0].message.parsed, whole.choices[0].message.parsed);
  assert.ok(seen.some((value) => value && Object.keys(value).length === 1));
});

checks.feature("tools", async () => {
  const answer = await client.chat.completions.create(toolsAsked);
  const [choice] = answer.choices;
  assert.equal(choice.finish_reason, "tool_calls");
  assert.equal(choice.message.content, null);
  assert.equal(choice.message.tool_calls.length, 1);
  const [call] = choice.message.tool_calls;
  checkWeather(JSON.parse(call.function.arguments));
  const final = await client.chat.completions.create({
    ...toolsAsked,
    tool_choice: "none",
    max_tokens: 12,
    messages: [
      ...toolsAsked.messages,
      choice.message,
      { role: "tool", tool_call_id: call.id, content: RESULT },
    ],
  });
  assert.ok(final.choices[0].message.content);
  assert.equal(final.choices[0].message.tool_calls, undefined);
});

checks.feature("tool stream", async () => {
  const whole = await client.chat.completions.create(toolsAsked);
  const runner = client.chat.completions.stream(toolsAsked);
  const deltas = [];
  runner.on("tool_calls.function.arguments.delta", ({ arguments_delta }) => deltas.push(arguments_delta));
  const final = await runner.finalChatCompletion();
  const [call] = final.choices[0].message.tool_calls;
  const { name, arguments: args } = whole.choices[0].message.tool_calls[0].function;
  assert.deepEqual([call.function.name, call.function.arguments], [name, args]);
  assert.equal(deltas.join(""), args);
  assert.equal(final.choices[0].finish_reason, "tool_calls");
});

checks.feature("tool loop", async () => {
  const calls = [];
  const call = (given) => {
    calls.push(given);
    return RESULT;
  };
  const runner = client.chat.completions.runTools({
    ...stable,
    max_tokens: 60,
    messages: [{ role: "user", content: REPEAT_CALL }],
    tools: [{ type: "function", function: { ...weather, parse: JSON.parse, function: call } }],
  });
  const text = await runner.finalContent();
  assert.deepEqual(calls, [WEATHER_CALL.arguments]);
  assert.deepEqual(
    runner.messages.map((message) => message.role),
    ["user", "assistant", "tool", "assistant"],
  );
  assert.ok(text);
});

checks.feature("responses", async () => {
  const answer = await client.responses.create(responseAsked);
  const chat = await client.chat.completions.create(asked);
  assert.equal(answer.status, "completed");
  assert.equal(answer.output_text, chat.choices[0].message.content);
  const next = await client.responses.create({
    ...responseAsked,
    input: "And then?",
    previous_response_id: answer.id,
  });
  assert.ok(next.usage.input_tokens > answer.usage.total_tokens);
  const cut = await client.responses.create({ ...responseAsked, max_output_tokens: 3 });
  assert.deepEqual([cut.status, cut.incomplete_details.reason], ["incomplete", "max_output_tokens"]);
});

checks.feature("responses stream", async () => {
  const whole = await client.responses.create(responseAsked);
  const stream = client.responses.stream(responseAsked);
  const events = await collect(stream);
  const final = await stream.finalResponse();
  assert.equal(final.output[0].content[0].text, whole.output_text);
  const deltas = events.filter((event) => event.type === "response.output_text.delta");
  assert.equal(deltas.map((event) => event.delta).join(""), whole.output_text);
  assert.deepEqual(events.map((event) => event.sequence_number), [...events.keys()]);
});

checks.feature("responses structured", async () => {
  const answer = await client.responses.parse({
    ...responseAsked,
    max_output_tokens: 60,
    input: PERSON_QUESTION,
    text: { format: zodTextFormat(Person, "person") },
  });
  Person.parse(answer.output_parsed);
});

checks.feature("responses tools", async () => {
  const whole = await client.responses.create(responseToolsAsked);
  const [call] = whole.output;
  assert.equal(call.type, "function_call");
  checkWeather(JSON.parse(call.arguments));
  const final = await client.responses.stream(responseToolsAsked).finalResponse();
  assert.equal(final.output[0].arguments, call.arguments);
  const text = await client.responses.create({
    ...responseToolsAsked,
    tool_choice: "none",
    max_output_tokens: 16,
    input: [
      { role: "user", content: WEATHER_QUESTION },
      call,
      { type: "function_call_output", call_id: call.call_id, output: RESULT },
    ],
  });
  assert.ok(text.output_text);
});

checks.feature("models", async () => {
  const models = await collect(client.models.list());
  assert.ok(models.some((model) => model.id === MODEL));
  const error = await raised(OpenAI.NotFoundError, () => client.models.retrieve("org/none"));
  assert.equal(error.code, "model_not_found");
});

checks.feature("embeddings refused", async () => {
  const error = await raised(OpenAI.BadRequestError, () =>
    client.embeddings.create({ model: MODEL, input: "a text" }),
  );
  assert.equal(error.param, "model");
});

checks.feature("errors", async () => {
  const create = (changes) => client.chat.completions.create({ ...asked, ...changes });
  const unknown = await raised(OpenAI.NotFoundError, () => create({ model: "nope" }));
  assert.deepEqual([unknown.code, unknown.param], ["model_not_found", "model"]);
  const hot = await raised(OpenAI.BadRequestError, () => create({ temperature: 3 }));
  assert.deepEqual([hot.type, hot.param], ["invalid_request_error", "temperature"]);
  const long = [{ role: "user", content: "word ".repeat(9000) }];
  const overflow = await raised(OpenAI.BadRequestError, () => create({ messages: long, stream: true }));
  assert.equal(overflow.code, "context_length_exceeded");
  const stranger = new OpenAI({ baseURL: BASE_URL, apiKey: "sk-nobody", maxRetries: 0 });
  const denied = await raised(OpenAI.AuthenticationError, () => stranger.chat.completions.create(asked));
  assert.equal(denied.code, "invalid_api_key");
});

await checks.run();
