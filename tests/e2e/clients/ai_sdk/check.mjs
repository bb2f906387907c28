// Vercel AI SDK 6: the openai-compatible provider over chat, the openai provider over Responses.
// Each chunk is validated with zod, and each data line is parsed as JSON.

import assert from "node:assert/strict";

import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import {
  APICallError,
  NoObjectGeneratedError,
  Output,
  embed,
  generateText,
  stepCountIs,
  streamText,
  tool,
} from "ai";
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
  RESULT,
  WEATHER_QUESTION,
  checkWeather,
  collect,
  raised,
} from "./features.mjs";

const checks = new Checks("ai", "@ai-sdk/openai-compatible", "@ai-sdk/openai");
const compatible = (apiKey) =>
  createOpenAICompatible({
    name: "ours",
    baseURL: BASE_URL,
    apiKey,
    includeUsage: true,
    supportsStructuredOutputs: true,
  });
const ours = compatible(API_KEY);
const responses = createOpenAI({ baseURL: BASE_URL, apiKey: API_KEY });
const stable = { temperature: 0, seed: 7, maxOutputTokens: MAX_TOKENS, maxRetries: 0 };
const asked = { model: ours(MODEL), prompt: "hi", ...stable };
// Responses has no seed.
const unseeded = { temperature: 0, maxOutputTokens: MAX_TOKENS, maxRetries: 0 };
const responsesAsked = { model: responses.responses(MODEL), prompt: "hi", ...unseeded };

const Person = z.object({
  name: z.enum(NAMES),
  is_adult: z.boolean(),
  level: z.union([z.literal(1), z.literal(2), z.literal(3)]),
});
const personAsked = {
  ...asked,
  prompt: PERSON_QUESTION,
  maxOutputTokens: 60,
  output: Output.object({ schema: Person }),
};

/** A call is required in the first step and forbidden in the second. */
const loopOf = (model, calls, settings) => ({
  ...settings,
  model,
  prompt: WEATHER_QUESTION,
  // Room for calls beside each other: the SDK cannot say that there be one only.
  maxOutputTokens: 200,
  tools: {
    get_weather: tool({
      description: "The weather of a city in some days.",
      inputSchema: z.object({
        city: z.enum(CITIES),
        days: z.union([z.literal(1), z.literal(2), z.literal(3)]),
      }),
      execute: async (given) => {
        calls.push(given);
        return RESULT;
      },
    }),
  },
  stopWhen: stepCountIs(2),
  prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? "required" : "none" }),
});

async function checkLoop(model, settings) {
  const calls = [];
  const whole = await generateText(loopOf(model, calls, settings));
  assert.equal(whole.steps.length, 2);
  assert.equal(whole.steps[0].finishReason, "tool-calls");
  assert.ok(calls.length >= 1);
  calls.forEach(checkWeather);
  assert.ok(whole.text);
  const streamed = [];
  const stream = streamText(loopOf(model, streamed, settings));
  const parts = await collect(stream.fullStream);
  assert.deepEqual(parts.filter((part) => part.type === "error"), []);
  assert.deepEqual(streamed, calls);
  assert.ok(parts.filter((part) => part.type === "tool-input-delta").length > 1);
  assert.equal(await stream.text, whole.text);
}

checks.feature("chat", async () => {
  const { text, finishReason, usage, response } = await generateText(asked);
  assert.ok(text);
  assert.equal(finishReason, "stop");
  assert.equal(usage.totalTokens, usage.inputTokens + usage.outputTokens);
  assert.equal(response.modelId, MODEL);
});

checks.feature("stream", async () => {
  const whole = await generateText(asked);
  const stream = streamText(asked);
  const parts = await collect(stream.textStream);
  assert.ok(parts.length > 2);
  assert.equal(parts.join(""), whole.text);
  assert.equal(await stream.finishReason, "stop");
  assert.equal((await stream.usage).outputTokens, whole.usage.outputTokens);
});

checks.feature("completions", async () => {
  const prompt = { ...asked, model: ours.completionModel(MODEL), prompt: "Once upon", maxOutputTokens: 5 };
  const whole = await generateText(prompt);
  assert.equal(whole.finishReason, "length");
  assert.equal((await collect(streamText(prompt).textStream)).join(""), whole.text);
});

checks.feature("structured output", async () => {
  const { output } = await generateText(personAsked);
  Person.parse(output);
  await raised(NoObjectGeneratedError, async () => {
    const cut = await generateText({ ...personAsked, maxOutputTokens: 3 });
    return cut.output;
  });
});

checks.feature("partial output", async () => {
  const { output } = await generateText(personAsked);
  const seen = await collect(streamText(personAsked).partialOutputStream);
  assert.deepEqual(seen.at(-1), output);
  assert.ok(seen.length > 1);
});

checks.feature("tools", () => checkLoop(ours(MODEL), stable));

checks.feature("responses", async () => {
  const { text, finishReason, usage } = await generateText(responsesAsked);
  assert.equal(text, (await generateText(asked)).text);
  assert.equal(finishReason, "stop");
  assert.ok(usage.inputTokens > 0);
});

checks.feature("responses stream", async () => {
  const whole = await generateText(responsesAsked);
  const stream = streamText(responsesAsked);
  assert.equal((await collect(stream.textStream)).join(""), whole.text);
  assert.equal((await stream.usage).outputTokens, whole.usage.outputTokens);
});

checks.feature("responses structured", async () => {
  const { output } = await generateText({
    ...responsesAsked,
    prompt: PERSON_QUESTION,
    maxOutputTokens: 60,
    output: Output.object({ schema: Person }),
  });
  Person.parse(output);
});

checks.feature("responses tools", () => checkLoop(responses.responses(MODEL), unseeded));

checks.feature("embeddings refused", async () => {
  const error = await raised(APICallError, () =>
    embed({ model: ours.embeddingModel(MODEL), value: "a text", maxRetries: 0 }),
  );
  assert.equal(error.statusCode, 400);
});

checks.feature("errors", async () => {
  const unknown = await raised(APICallError, () => generateText({ ...asked, model: ours("nope") }));
  assert.equal(unknown.statusCode, 404);
  assert.equal(unknown.data.error.code, "model_not_found");
  assert.equal(unknown.isRetryable, false);
  const overflow = await raised(APICallError, () =>
    generateText({ ...asked, prompt: "word ".repeat(9000) }),
  );
  assert.equal(overflow.data.error.code, "context_length_exceeded");
  const errors = [];
  const stranger = streamText({
    ...asked,
    model: compatible("sk-nobody")(MODEL),
    onError: ({ error }) => errors.push(error),
  });
  await collect(stranger.fullStream);
  assert.deepEqual(errors.map((error) => error.statusCode), [401]);
});

await checks.run();
