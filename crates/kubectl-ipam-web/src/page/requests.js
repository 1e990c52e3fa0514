// @ts-check
// Requests to the server of the page.

/** The server rejects a request. */
export class RequestError extends Error {
  /**
   * @param {string} message
   * @param {number} status
   */
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/**
 * Fetches JSON. Returns null if the answer is 404.
 * @param {string} path
 * @param {Record<string, string>} [parameters]
 */
export async function get(path, parameters) {
  const response = await fetch(`${path}?${new URLSearchParams(parameters)}`);
  if (response.status === 404) return null;
  if (!response.ok) throw new RequestError(await response.text(), response.status);
  return response.json();
}

/** Loads now, and again if asked meanwhile: at most one request at a time. */
export class Loader {
  #isRunning = false;
  #isWanted = false;

  /** @param {() => Promise<void>} load */
  constructor(load) {
    this.load = load;
  }

  async run() {
    this.#isWanted = true;
    if (this.#isRunning) return;
    this.#isRunning = true;
    try {
      while (this.#isWanted) {
        this.#isWanted = false;
        await this.load();
      }
    } catch (error) {
      // The stream of events reports that the server is gone.
      console.warn(error instanceof Error ? error.message : error);
    } finally {
      this.#isRunning = false;
    }
  }
}
