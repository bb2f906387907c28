"use strict";
// Asks the server. Addresses are relative to the page's own, so that they keep a proxy's prefix.

const KEY_NAME = "radixgate-key";

// What the server refused, or that it did not answer (status 0).
class ServerError extends Error {
  constructor(message, about = {}) {
    super(message);
    const unknown = { status: 0, code: null, type: null, param: null, headers: null };
    Object.assign(this, unknown, about);
  }
}

// For this tab only. A browser may forbid to keep anything: then until the page is left.
const keyStore = {
  kept: "",
  get key() {
    try {
      return sessionStorage.getItem(KEY_NAME) || this.kept;
    } catch {
      return this.kept;
    }
  },
  set key(value) {
    this.kept = value;
    try {
      if (value) sessionStorage.setItem(KEY_NAME, value);
      else sessionStorage.removeItem(KEY_NAME);
    } catch {
      // kept in the page
    }
  },
};

// The response of a request that was accepted; throws ServerError, or AbortError where the caller
// gave up.
async function ask(path, { body = null, signal = null } = {}) {
  const headers = keyStore.key ? { authorization: `Bearer ${keyStore.key}` } : {};
  if (body !== null) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(path, {
      method: body === null ? "GET" : "POST",
      headers,
      body: body === null ? null : JSON.stringify(body),
      signal,
      cache: "no-store",
      credentials: "same-origin",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("The server does not answer.");
  }
  if (response.ok) return response;
  throw await refusal(response);
}

async function askJson(path) {
  const response = await ask(path);
  try {
    return await response.json();
  } catch {
    throw new ServerError("The server's answer broke off.");
  }
}

async function refusal(response) {
  const { status, headers } = response;
  let told = null;
  try {
    told = (await response.json()).error;
  } catch {
    // a proxy's page, or nothing
  }
  return told ? failure(told, { status, headers })
    : new ServerError(`The server answered with status ${status}.`, { status, headers });
}

// Of an error object, as a refusal or in the middle of a stream.
function failure(told, { status, headers }) {
  const { code = null, type = null, param = null } = told;
  return new ServerError(String(told.message), { status, code, type, param, headers });
}

// The `data:` lines of a stream of events, as they come.
async function* eventData(response) {
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        if (line.startsWith("data:")) yield line.slice(5).trim();
      }
    }
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("The connection broke off.", { headers: response.headers });
  } finally {
    reader.releaseLock();
  }
}
