'use strict';

// Kinds of operations: their place in `work`, the bound that they can be, and the name of their ceiling.
const kOperations = {
  exponentials: { place: 1, bound: 'mufu', ceiling: () => 'exponentials' },
  'multiply-adds': { place: 2, bound: 'fma', ceiling: () => 'fmas' },
  'tensor operations': { place: 3, bound: 'tensor', ceiling: (one) => (one.dtype === 'f32' ? 'tf32' : one.dtype) + '_flops' },
};
const kMemories = { dram_bytes: 'memory', cache_bytes: 'cache' };

/** What the case's device can do at most, in G/s; nothing where it was not calibrated. */
function ceilingOf(one, name) {
  const text = data.files[one.file].devices[one.device]?.[`ceiling_${name}_per_s`];
  return text === undefined ? null : Number(text) / 1e9;
}

/** Distinct [text, G/s] among the cases. */
function ceilings(cases, name, text) {
  const known = cases.filter((one) => ceilingOf(one, name) !== null);
  return distinct(known, (one) => JSON.stringify([text(one), ceilingOf(one, name)])).map((each) => JSON.parse(each));
}

/** Room on either side for the roofs to be seen. */
function rangeAround(xs) {
  return [Math.min(...xs) / 8, Math.max(...xs) * 8];
}

/** The roofs over these cases: {text, points, dash}; straight lines where both axes are logarithmic. */
function roofs(cases, kind, xs) {
  const { ceiling } = kOperations[kind];
  const [low, high] = rangeAround(xs);
  const names = distinct(cases, ceiling);
  const peaks = names.flatMap((name) => ceilings(cases, name, (one) => `${one.device} ${name}`));
  const top = peaks.length ? Math.max(...peaks.map(([, rate]) => rate)) : Infinity;
  const slopes = Object.entries(kMemories).flatMap(([name, word], place) =>
    ceilings(cases, name, (one) => `${one.device} ${word}`).map(([text, rate]) => ({
      text: `${text} ${number(rate)} GB/s`,
      points: [low, Math.max(low, Math.min(high, top / rate))].map((x) => ({ x, y: x * rate })),
      dash: place ? [4, 4] : [],
    })));
  const flats = peaks.map(([text, rate]) => ({
    text: `${text} ${number(rate)} G/s`,
    points: [low, high].map((x) => ({ x, y: rate })),
    dash: [10, 4],
  }));
  return [...slopes, ...flats];
}

/** A roof as a dataset. */
function roofLine({ text, points, dash }) {
  return () => ({
    label: text,
    data: points,
    borderColor: theme().ink,
    backgroundColor: theme().ink,
    borderDash: dash,
    borderWidth: 2,
    pointRadius: 0,
    pointStyle: 'line',
  });
}

function addRoofline() {
  const made = section('Roofline',
    'Each point is a case: operations per byte of its least traffic, and operations per second. The roofs are the measured ' +
    'ceilings of the device; a device that was not calibrated has none (ssmbench list devices --calibrate). ' +
    'The closer to a roof, the less can be gained.');
  const controls = element('div', { class: 'controls' });
  const caption = element('span');
  const { figure, draw } =
    chartFigure('Points of operations per second over operations per byte, both logarithmic', caption);
  const below = element('div');
  made.append(controls, figure, below);
  let kind = null;
  const update = () => {
    const cases = timed(chosenCases()).filter((one) => one.work);
    const kinds = Object.keys(kOperations).filter((name) => cases.some((one) => one.work[kOperations[name].place] > 0));
    const binding = (name) => cases.filter((one) => one.roofline?.bound === kOperations[name].bound).length;
    if (!kinds.includes(kind)) kind = kinds.reduce((a, b) => (a === null || binding(b) > binding(a) ? b : a), null);
    figure.hidden = kind === null;
    controls.replaceChildren();
    below.replaceChildren();
    if (kind === null) {
      below.append(element('p', {}, 'No selected case has both a time and its least work.'));
      return;
    }
    controls.append(choice('Operations', kinds, kind, (value) => {
      kind = value;
      update();
      controls.querySelector('select').focus();
    }));
    const { place } = kOperations[kind];
    const shown = cases.filter((one) => one.work[place] > 0);
    const point = (one) => ({
      x: one.work[place] / one.work[0],
      y: one.work[place] / (one.timing[timingKind][0] * 1e6),
      name: rowLabel(one),
    });
    const series = kSeries.filter((name) => shown.some((one) => one.series === name));
    const xs = shown.map((one) => point(one).x);
    const [min, max] = rangeAround(xs);
    const ys = shown.map((one) => point(one).y);
    const lines = roofs(shown, kind, xs);
    const extra = lines.map(roofLine);
    const peaks = lines.flatMap(({ points }) => points[1].y);
    caption.textContent = (lines.length > 0 ? `Roofs: ${lines.map(({ text }) => text).join(', ')}. ` : '') +
      'Both axes are logarithmic. The table has each case’s floor: the least time that the ceilings allow.';
    const make = lineChart(series, (name) => shown.filter((one) => one.series === name).map(point),
      () => axis(`${kind} per byte`, 'log', { min, max }), () => axis(`G ${kind} per second`, 'log', logLimits([...ys, ...peaks], 2)), { extra });
    draw(() => {
      const config = make();
      config.data.datasets.slice(0, series.length).forEach((dataset) => (dataset.showLine = false));
      config.options.plugins.tooltip = {
        callbacks: { label: ({ dataset, raw }) => `${dataset.label} ${raw.name ?? ''}: ${number(raw.y)} G/s` },
      };
      return config;
    }, 420);
    below.append(dataTable('roofline fractions', [
      { name: 'Shape', of: (one) => one.shape },
      { name: 'Type', of: (one) => one.dtype },
      { name: 'Options', of: (one) => one.options },
      { name: 'Implementation', of: (one) => one.series },
      { name: 'median ms', numeric: true, of: (one) => number(one.timing[timingKind][0]) },
      { name: 'floor ms', numeric: true, optional: true, of: (one) => number(one.roofline?.floor) },
      { name: 'bound by', optional: true, of: (one) => one.roofline?.bound ?? '' },
      { name: '% of peak', numeric: true, optional: true, of: (one) => percent(one.roofline?.fraction) },
      { name: 'GB/s', numeric: true, of: (one) => number(gigabytesPerSecond(one, timingKind)) },
      { name: `${kind} per byte`, numeric: true, of: (one) => number(point(one).x) },
      { name: `G ${kind} per second`, numeric: true, of: (one) => number(point(one).y) },
    ], shown));
  };
  return update;
}
