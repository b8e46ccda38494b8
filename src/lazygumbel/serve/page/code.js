// The same draws from a shell or from Python.

const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

const python = (value) => {
  if (value === true) return "True";
  if (value === false) return "False";
  return JSON.stringify(value);
};

export function curl(body) {
  const address = `${location.origin}/v1/sample-without-replacement`;
  return `curl ${address} \\\n  -H 'Content-Type: application/json' \\\n  -d ${quoted(JSON.stringify(body))}`;
}

export function asPython({ theta, size, ...others }) {
  const settings = Object.entries(others).map(([name, value]) => `${name}=${python(value)}`);
  return [
    "from lazygumbel.client import Client",
    "",
    `with Client(${python(location.origin)}) as client:`,
    `    drawn = client.sample_without_replacement(${[python(theta), size, ...settings].join(", ")})`,
    "print(drawn.names or drawn.ids, drawn.label)",
    "",
  ].join("\n");
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Not a secure context: by way of a field that is selected.
    const field = document.createElement("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
}
