// What every npm client's check.mjs is made of: named checks, run in order, one JSON line for each.
// It is copied beside the check into the client's environment, where node finds the packages.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

export const BASE_URL = process.env.BASE_URL;
export const MODEL = process.env.MODEL;
export const API_KEY = process.env.API_KEY;
export const MAX_TOKENS = 24;
export const PERSON_QUESTION = "Invent a person, as JSON.";
export const WEATHER_QUESTION = "What will the weather be in Tokyo in two days?";
export const RESULT = "18 degrees and rain";
export const CITIES = ["Paris", "Tokyo"];
export const WEATHER_CALL = { name: "get_weather", arguments: { city: "Tokyo", days: 2 } };
// At this even a small model that may choose makes the call.
export const REPEAT_CALL = `Repeat: <tool_call>${JSON.stringify(WEATHER_CALL)}</tool_call>`;
// Values are of finite sets, so that a model of any quality ends its answer.
export const NAMES = ["Ada", "Grace", "Alan"];
const DETAIL_LEN = 600;

/** The checks of one client; `packages` are those whose versions the report names. */
export class Checks {
  #packages;
  #checks = [];

  constructor(...packages) {
    this.#packages = packages;
  }

  /** Adds a function that returns when the feature works and throws when not. */
  feature(name, check) {
    this.#checks.push([name, check]);
  }

  /** Prints the versions and a line for each feature; a failure does not end the run. */
  async run() {
    print({ packages: Object.fromEntries(this.#packages.map((name) => [name, version(name)])) });
    const wanted = process.argv.slice(2);
    for (const [name, check] of this.#checks) {
      if (wanted.length && !wanted.includes(name)) continue;
      const detail = await failure(check);
      print({ feature: name, ok: !detail, detail });
    }
  }
}

/** The error that the call throws or rejects with, which must be of this class. */
export async function raised(kind, call) {
  let got;
  try {
    got = await call();
  } catch (error) {
    assert.ok(error instanceof kind, `${kind.name} was expected, not ${error}`);
    return error;
  }
  throw new assert.AssertionError({ message: `${kind.name} was expected, not ${got}` });
}

/** All of an async iterable. */
export async function collect(iterable) {
  const items = [];
  for await (const item of iterable) items.push(item);
  return items;
}

/** Throws unless the arguments fit the tool get_weather. */
export function checkWeather({ city, days, ...rest }) {
  assert.deepEqual(rest, {});
  assert.ok(CITIES.includes(city), city);
  assert.ok([1, 2, 3].includes(days), days);
}

async function failure(check) {
  try {
    await check();
    return "";
  } catch (error) {
    console.error(error);
    const place = /check\.mjs:\d+/.exec(error?.stack ?? "")?.[0] ?? "";
    const reason = `${error?.name}: ${error?.message}`.replace(/\s+/g, " ").slice(0, DETAIL_LEN);
    return `${reason} [${place}]`;
  }
}

function version(name) {
  const file = new URL(`./node_modules/${name}/package.json`, import.meta.url);
  return JSON.parse(readFileSync(file, "utf8")).version;
}

function print(record) {
  process.stdout.write(`${JSON.stringify(record)}\n`);
}
