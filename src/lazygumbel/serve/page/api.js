// Requests to the service that the page came from, and to no other.

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

let token = sessionStorage.getItem("token");

export const hasToken = () => Boolean(token);

async function askForToken() {
  const dialog = document.getElementById("token-dialog");
  if (!dialog.open) dialog.showModal();
  await new Promise((done) => dialog.addEventListener("close", done, { once: true }));
  token = document.getElementById("token").value.trim();
  sessionStorage.setItem("token", token);
}

async function request(path, options) {
  for (let attempt = 0; ; attempt++) {
    let response;
    try {
      const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
      response = await fetch(path, { ...options, headers });
    } catch {
      throw new Refused(0, "The service does not answer. Is it still running?");
    }
    if (response.status === 401) {
      await askForToken();
      continue;
    }
    if (response.status === 429 && attempt < 5) {
      await new Promise((done) => setTimeout(done, 1000 * Number(response.headers.get("retry-after") ?? 1)));
      continue;
    }
    const found = await response.json().catch(() => ({ error: "The answer cannot be read." }));
    if (!response.ok) throw new Refused(response.status, found.error);
    found.ms = Number(/dur=([\d.]+)/.exec(response.headers.get("server-timing") ?? "")?.[1] ?? NaN);
    return found;
  }
}

export const ask = (verb, body) =>
  request(`/v1/${verb}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

export const get = (path, query = {}) => {
  const text = new URLSearchParams(query).toString();
  return request(text ? `${path}?${text}` : path, { method: "GET" });
};
