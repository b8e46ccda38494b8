// Numbers in the words of a page.

const whole = new Intl.NumberFormat("en-US");

export const count = (n) => whole.format(n);

export function short(x, digits = 3) {
  if (x === null || !Number.isFinite(x)) return "–";
  const size = Math.abs(x);
  if (size >= 1e6) return power(x, digits);
  if (size >= 1000) return whole.format(Math.round(x));
  if (size !== 0 && size < 1e-3) return power(x, digits);
  return String(Number(x.toPrecision(digits)));
}

export function power(x, digits = 2) {
  if (x === 0) return "0";
  const [mantissa, exponent] = x.toExponential(digits - 1).split("e");
  const raised = [...String(Number(exponent))].map((c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]).join("");
  return mantissa === "1" ? `10${raised}` : `${mantissa}\u00a0×\u00a010${raised}`;
}

// A probability: per cent down to a thousandth of one, then powers of ten.
export function chance(p) {
  if (!Number.isFinite(p)) return "–";
  if (p >= 0.9995) return `${(100 * p).toFixed(2)}%`;
  if (p >= 0.1) return `${(100 * p).toFixed(1)}%`;
  if (p >= 0.001) return `${(100 * p).toFixed(2)}%`;
  if (p >= 1e-5) return `${(100 * p).toPrecision(2)}%`;
  return power(p);
}

// A relative error, as so many per cent of what it belongs to.
export function relative(r) {
  if (r === 0) return "exact";
  if (!Number.isFinite(r)) return "±?";
  if (r < 1e-6) return "±<10⁻⁴%"; // less than the rounding of float32
  return `±${r >= 0.00005 ? (100 * r).toFixed(r >= 0.1 ? 0 : r >= 0.01 ? 1 : 2) : power(100 * r, 1)}%`;
}

export const milliseconds = (ms) => (ms >= 1000 ? `${(ms / 1000).toFixed(1)} s` : `${ms.toFixed(ms >= 10 ? 0 : 1)} ms`);
