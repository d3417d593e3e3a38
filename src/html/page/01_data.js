'use strict';

// What page_data.cpp wrote:
//   version, files: [{name, started, argv, build, devices}],
//   cases: [{file, id, op, impl, device, dtype, sizes: {batch: 8, …}, options, status, math?, state_dtype?, lowered?, cause?, reason?, repro?,
//            outputs: {out: {ratio, rms, rel, steps?, first?: [step, …], over_time?: [err/tol, …]}},
//            timing?: {hot: [median, low, high, confidence, samples], …}, milliseconds,
//            work?: [bytes, exponentials, multiply-adds, tensor operations],
//            team?: {ranks, sent, exchange, rerun, over, speedup, efficiency}, bytes and milliseconds, null where not known,
//            roofline?: {floor, bound, fraction}, transfers?: [h2d, d2h, end to end, … pageable], budget?}],
//   skips: [{file, op, impl, cause, reason, count}],
//   convergence: [{file, method, A: [re, im], horizon, order: [theory, measured], limit: [theory, measured],
//                  runs: [[delta, discretization error, f32 rounding error], …]}]
// null is a number that was not finite.
const data = JSON.parse(document.getElementById('data').textContent);

const kDecided = ['pass', 'fail', 'error', 'invalid', 'unverified'];
const kTimings = ['hot', 'cold', 'graph'];

for (const one of data.cases) {
  one.shape = Object.values(one.sizes).join('×');
  const lowered = one.lowered ? `${one.impl} [${one.lowered}]` : one.impl;
  const impl = one.team ? `${lowered} on ${one.device}` : lowered;
  one.series = data.files.length > 1 ? `${impl} (${data.files[one.file].name})` : impl;
}

/** Distinct values in the order in which they come. */
function distinct(list, value = (each) => each) {
  return [...new Set(list.map(value))];
}

/** Map from key(each) to all that have it, in the order in which they come. */
function grouped(list, key) {
  const groups = new Map();
  for (const each of list) {
    const name = key(each);
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(each);
  }
  return groups;
}

/** The value that most of the list have. */
function mostCommon(list, value) {
  const groups = [...grouped(list, value)];
  return groups.length ? groups.reduce((a, b) => (b[1].length > a[1].length ? b : a))[0] : undefined;
}

/** The largest err/tol of a case's outputs; infinite where one was not finite. */
function worstRatio(one) {
  const ratios = Object.values(one.outputs).map((output) => output.ratio ?? Infinity);
  return ratios.length ? Math.max(...ratios) : null;
}

function gigabytesPerSecond(one, timing = 'hot') {
  return one.work && one.timing?.[timing] ? one.work[0] / (one.timing[timing][0] * 1e6) : null;
}
