'use strict';

const kBarsAtOnce = 48;
let timingKind = 'hot';

function timingKinds() {
  return kTimings.filter((kind) => data.cases.some((one) => one.timing?.[kind]));
}

function timed(cases) {
  return cases.filter((one) => one.timing?.[timingKind]);
}

const kTimingNames = {
  hot: 'hot: inputs as the last run left them',
  cold: 'cold: L2 flushed',
  graph: 'graph: replayed CUDA graph',
};

/** Everything about time in one table. */
function timingTable(cases) {
  const time = (kind, place) => ({
    name: `${kind} ${['median ms', 'from', 'to'][place]}`,
    numeric: true,
    optional: true,
    of: (one) => number(one.timing[kind]?.[place]),
  });
  const transfer = (name, place) => ({ name, numeric: true, optional: true, of: (one) => number(one.transfers?.[place]) });
  return dataTable('times', [
    { name: 'Shape', of: (one) => one.shape },
    { name: 'Type', of: (one) => one.dtype },
    { name: 'Options', of: (one) => one.options },
    { name: 'Implementation', of: (one) => one.series },
    { name: 'Device', of: (one) => one.device },
    ...timingKinds().flatMap((kind) => [0, 1, 2].map((place) => time(kind, place))),
    { name: 'Confidence', numeric: true, of: (one) => percent(one.timing[timingKind][3]) },
    { name: 'Samples', numeric: true, of: (one) => String(one.timing[timingKind][4]) },
    { name: 'GB/s', numeric: true, optional: true, of: (one) => number(gigabytesPerSecond(one, timingKind)) },
    transfer('host to device ms', 0),
    transfer('device to host ms', 1),
    transfer('end to end ms', 2),
    transfer('end to end ms, pageable', 3),
    { name: 'Budget ms', numeric: true, optional: true, of: (one) => number(one.budget) },
    {
      name: 'Budget',
      optional: true,
      of: (one) => (one.budget ? (one.timing[timingKind][0] <= one.budget ? '✓ met' : '✗ missed') : ''),
    },
  ], cases);
}

function addShapes() {
  const made = section('Time per shape',
    'Medians; whiskers are the 95% confidence interval of the median, between two of the samples (of fewer than six ' +
    'samples, the smallest and the largest). Shorter is faster.');
  const controls = element('div', { class: 'controls' });
  const heading = element('p', { class: 'note' });
  const { figure, draw } = chartFigure('Bars of the time per shape and implementation', heading);
  const below = element('div');
  made.append(controls, figure, below);
  let page = 0;
  const update = () => {
    const cases = timed(chosenCases());
    const series = kSeries.filter((name) => cases.some((one) => one.series === name));
    const rows = grouped(cases, rowLabel);
    const labels = [...rows.keys()];
    const perPage = Math.max(4, Math.floor(kBarsAtOnce / Math.max(series.length, 1)));
    const pages = Math.ceil(labels.length / perPage);
    page = Math.min(page, Math.max(pages - 1, 0));
    const shown = labels.slice(page * perPage, (page + 1) * perPage);
    const find = (row, name) => {
      const one = rows.get(row).find((each) => each.series === name);
      return one && { value: one.timing[timingKind][0], interval: one.timing[timingKind].slice(1, 3) };
    };
    const values = shown.flatMap((row) => rows.get(row)).flatMap((one) => one.timing[timingKind].slice(0, 3));
    const log = Math.max(...values) > 30 * Math.min(...values);
    controls.replaceChildren();
    if (pages > 1)
      controls.append(choice('Shapes', [...Array(pages).keys()].map(String), String(page), (value) => {
        page = Number(value);
        update();
        controls.querySelector('select').focus();
      }, (value) => `${value * perPage + 1} to ${Math.min(labels.length, (+value + 1) * perPage)} of ${labels.length}`));
    figure.hidden = shown.length === 0;
    const sizes = Object.keys(cases[0]?.sizes ?? {}).join('×');
    heading.textContent = `Shapes are ${sizes}.`;
    if (shown.length > 0)
      draw(barChart(shown, series, find, {
        title: `median ms, ${timingKind}${log ? ', logarithmic' : ''}`,
        log,
        limits: log ? logLimits(values) : { suggestedMax: Math.max(...values) },
      }), barHeight(shown, series));
    below.replaceChildren(cases.length > 0 ? timingTable(cases) : element('p', {}, 'No selected case was timed.'));
  };
  return update;
}

/** Sizes that scaling is shown over. */
const kScalingAxes = ['seqlen', 'batch'];

/** What has to be equal along a line but the implementation, for people. */
function lineGroup(one, axisName) {
  const others = Object.entries(one.sizes).filter(([name]) => name !== axisName).map(([name, size]) => `${name} ${size}`);
  return `${others.join(', ')} ${beyondShape(one)}`.trim();
}

function addScalingOver(made, axisName) {
  const controls = element('div', { class: 'controls' });
  const { figure, draw } = chartFigure(`Lines of the time over ${axisName}, both logarithmic`,
    `Median time over ${axisName}; both axes logarithmic.`);
  const below = element('div');
  const part = element('div', {}, element('h3', {}, `Over ${axisName}`), controls, figure, below);
  made.append(part);
  let group = null;
  const update = () => {
    const groups = grouped(timed(chosenCases()).filter((one) => one.sizes[axisName]), (one) => lineGroup(one, axisName));
    const size = (one) => one.sizes[axisName];
    for (const [name, cases] of groups) if (distinct(cases, size).length < 2) groups.delete(name);
    part.hidden = groups.size === 0;
    if (part.hidden) return true;
    if (!groups.has(group)) group = [...groups].reduce((a, b) => (b[1].length > a[1].length ? b : a))[0];
    const cases = groups.get(group).sort((a, b) => size(a) - size(b));
    controls.replaceChildren(choice('At', [...groups.keys()], group, (value) => {
      group = value;
      update();
      controls.querySelector('select').focus();
    }));
    const series = kSeries.filter((name) => cases.some((one) => one.series === name));
    const ticks = distinct(cases, size);
    draw(lineChart(series,
      (name) => cases.filter((one) => one.series === name).map((one) => ({ x: size(one), y: one.timing[timingKind][0] })),
      () => axis(axisName, 'doubling', { at: ticks }), () => axis(`median ms, ${timingKind}`, 'log', logLimits(cases.map((one) => one.timing[timingKind][0])))), 380);
    below.replaceChildren(dataTable(`times over ${axisName}`, [
      { name: axisName, numeric: true, of: (one) => String(size(one)) },
      { name: 'Implementation', of: (one) => one.series },
      { name: 'median ms', numeric: true, of: (one) => number(one.timing[timingKind][0]) },
    ], cases));
    return false;
  };
  return update;
}

function addScaling() {
  const made = section('Scaling');
  const nothing = element('p', {}, 'No two of these cases differ only in seqlen or batch.');
  const updates = kScalingAxes.map((name) => addScalingOver(made, name));
  made.append(nothing);
  return () => {
    nothing.hidden = !updates.map((update) => update()).every((empty) => empty);
  };
}
