'use strict';

// Kinds of operations: their place in `work`, and the bound whose ceiling limits them.
const kOperations = {
  exponentials: { place: 1, bound: 'mufu', unit: 'exponentials' },
  'multiply-adds': { place: 2, bound: 'fma', unit: 'multiply-adds' },
  'tensor operations': { place: 3, bound: 'tensor', unit: 'tensor operations' },
};
const kMemories = ['dram', 'l2'];

/** Ceilings, in G/s: what binds takes the whole floor, so that its work over the floor is its ceiling. */
function ceilingOf(cases, bound, place) {
  const rates = cases.filter((one) => one.roofline?.bound === bound && one.work)
    .map((one) => one.work[place] / (one.roofline.floor * 1e6));
  return rates.length ? Math.max(...rates) : null;
}

/** Room on either side for the roofs to be seen. */
function rangeAround(xs) {
  return [Math.min(...xs) / 8, Math.max(...xs) * 8];
}

/** Straight lines in a chart whose axes are both logarithmic. */
function roofs(cases, kind, xs) {
  const { place, bound } = kOperations[kind];
  const peak = ceilingOf(cases, bound, place);
  const [low, high] = rangeAround(xs);
  const made = [];
  const add = (label, points, dash) => made.push(() => ({
    label,
    data: points,
    borderColor: theme().ink,
    backgroundColor: theme().ink,
    borderDash: dash,
    borderWidth: 2,
    pointRadius: 0,
    pointStyle: 'line',
  }));
  for (const [index, memory] of kMemories.entries()) {
    const bandwidth = ceilingOf(cases, memory, 0);
    if (bandwidth === null) continue;
    const end = peak === null ? high : Math.min(high, peak / bandwidth);
    if (end > low)
      add(`${memory}: ${number(bandwidth)} GB/s`, [low, end].map((x) => ({ x, y: x * bandwidth })), index ? [4, 4] : []);
  }
  if (peak !== null) add(`${bound}: ${number(peak)} G/s`, [low, high].map((x) => ({ x, y: peak })), [10, 4]);
  return made;
}

function addRoofline() {
  const made = section('Roofline',
    'Each point is a case: operations per byte that has to move at least, and operations per second. The roofs are the ' +
    'device’s ceilings as the floors in the results imply them; there are none where the device was not calibrated ' +
    '(ssmbench list devices --calibrate). The nearer to a roof, the less is left to gain.');
  const controls = element('div', { class: 'controls' });
  const { figure, draw } = chartFigure('Points of operations per second over operations per byte, both logarithmic',
    'Both axes logarithmic. The table has each case’s floor: the least time that the ceilings allow.');
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
      below.append(element('p', {}, 'Nothing here was timed and says what work it does.'));
      return;
    }
    controls.append(choice('Operations', kinds, kind, (value) => {
      kind = value;
      update();
      controls.querySelector('select').focus();
    }));
    const { place, unit } = kOperations[kind];
    const shown = cases.filter((one) => one.work[place] > 0);
    const point = (one) => ({
      x: one.work[place] / one.work[0],
      y: one.work[place] / (one.timing[timingKind][0] * 1e6),
      name: rowLabel(one),
    });
    const series = kSeries.filter((name) => shown.some((one) => one.series === name));
    const xs = shown.map((one) => point(one).x);
    const [min, max] = rangeAround(xs);
    const extra = roofs(shown, kind, xs);
    const make = lineChart(series, (name) => shown.filter((one) => one.series === name).map(point),
      () => axis(`${unit} per byte`, 'log', { min, max }), () => axis(`G ${unit} per second`, 'log'), { extra });
    draw(() => {
      const config = make();
      config.data.datasets.slice(0, series.length).forEach((dataset) => (dataset.showLine = false));
      config.options.plugins.tooltip = {
        callbacks: { label: ({ dataset, raw }) => `${dataset.label} ${raw.name ?? ''}: ${number(raw.y)} G/s` },
      };
      return config;
    }, 420);
    below.append(dataTable('distance to the floor', [
      { name: 'Shape', of: (one) => one.shape },
      { name: 'Type', of: (one) => one.dtype },
      { name: 'Options', of: (one) => one.options },
      { name: 'Implementation', of: (one) => one.series },
      { name: 'median ms', numeric: true, of: (one) => number(one.timing[timingKind][0]) },
      { name: 'floor ms', numeric: true, optional: true, of: (one) => number(one.roofline?.floor) },
      { name: 'bound by', optional: true, of: (one) => one.roofline?.bound ?? '' },
      { name: 'fraction reached', numeric: true, optional: true, of: (one) => percent(one.roofline?.fraction) },
      { name: 'GB/s', numeric: true, of: (one) => number(gigabytesPerSecond(one, timingKind)) },
      { name: `${unit} per byte`, numeric: true, of: (one) => number(point(one).x) },
      { name: `G ${unit} per second`, numeric: true, of: (one) => number(point(one).y) },
    ], shown));
  };
  return update;
}
