'use strict';

/** A ratio that can be drawn: what is not finite stands at the end of the scale. */
const kBeyond = 1e6;
function drawn(ratio) {
  return Math.min(ratio ?? kBeyond, kBeyond);
}

/** [{output, series, dtype, cases, worst, median, of}] for each output, implementation and data type. */
function errorRows(cases) {
  const all = cases.flatMap((one) =>
    Object.entries(one.outputs).map(([output, errors]) => ({ output, one, errors, ratio: errors.ratio ?? Infinity })));
  return [...grouped(all, ({ output, one }) => JSON.stringify([output, one.dtype, one.series])).values()].map((group) => {
    const sorted = group.sort((a, b) => a.ratio - b.ratio);
    const worst = sorted[sorted.length - 1];
    return {
      output: worst.output,
      series: worst.one.series,
      dtype: worst.one.dtype,
      cases: sorted.length,
      worst,
      median: sorted[Math.floor((sorted.length - 1) / 2)].ratio,
      rms: Math.max(...sorted.map(({ errors }) => errors.rms ?? Infinity)),
    };
  });
}

function addErrors() {
  const made = section('Error against tolerance',
    'The largest error of each output in units of its tolerance, over all elements of all cases; beyond 1 fails. In f16 and ' +
    'bf16 the rounding of the result is nearly all of the tolerance, so that honest kernels come close to 1.');
  const { figure, draw } = chartFigure('Bars of the largest error in units of the tolerance per output and implementation',
    'The largest err/tol. The dashed line is the tolerance.');
  const below = element('div');
  made.append(figure, below);
  return () => {
    const rows = errorRows(chosenCases());
    const label = (row) => (chosen.dtype === kAll ? `${row.output} ${row.dtype}` : row.output);
    const groups = grouped(rows, label);
    const labels = [...groups.keys()];
    const series = kSeries.filter((name) => rows.some((row) => row.series === name));
    const log = rows.some((row) => row.worst.ratio > 2);
    figure.hidden = rows.length === 0;
    const find = (place, name) => {
      const row = groups.get(place).find((each) => each.series === name);
      return row && { value: log ? Math.max(drawn(row.worst.ratio), 1e-6) : row.worst.ratio };
    };
    if (rows.length > 0)
      draw(barChart(labels, series, find, {
        title: `error / tolerance${log ? ', logarithmic' : ''}`,
        log,
        limits: log ? logLimits([1, ...rows.map((row) => Math.max(drawn(row.worst.ratio), 1e-3))]) : { suggestedMax: 1.05 },
        marked: { axis: 'x', value: 1, text: 'tolerance' },
      }), barHeight(labels, series));
    below.replaceChildren(rows.length === 0 ? element('p', {}, 'No selected case was verified.') :
      dataTable('errors', [
        { name: 'Output', of: (row) => row.output },
        { name: 'Type', of: (row) => row.dtype },
        { name: 'Implementation', of: (row) => row.series },
        { name: 'Cases', numeric: true, of: (row) => String(row.cases) },
        { name: 'Largest err/tol', numeric: true, of: (row) => number(row.worst.ratio) },
        { name: 'Median of cases', numeric: true, of: (row) => number(row.median) },
        { name: 'Largest rms', numeric: true, of: (row) => number(row.rms) },
        { name: 'rel. L2 there', numeric: true, of: (row) => number(row.worst.errors.rel) },
        { name: 'Where it is largest', of: (row) => element('code', {}, row.worst.one.id) },
      ], rows));
  };
}

/** [step, err/tol] for each span of steps, and the end. */
function profileOf(one, output) {
  const { first, over_time: ratios, steps } = one.outputs[output];
  return [...first.map((x, place) => ({ x, y: drawn(ratios[place]) })),
    { x: steps, y: drawn(ratios[ratios.length - 1]) }];
}

function addErrorOverTime() {
  const made = section('Error over time steps',
    'The largest err/tol among the steps of each sixteenth of the sequence. An error that accumulates grows to the right; a ' +
    'jump shows where an error begins.');
  const controls = element('div', { class: 'controls' });
  const { figure, draw } = chartFigure('Lines of the error in units of the tolerance over time steps',
    'The dashed line is the tolerance.');
  const below = element('div');
  made.append(controls, figure, below);
  let [output, shape] = [null, null];
  const update = () => {
    const cases = chosenCases().filter((one) => Object.values(one.outputs).some((each) => each.over_time));
    const outputs = distinct(cases.flatMap((one) => Object.keys(one.outputs).filter((name) => one.outputs[name].over_time)));
    if (!outputs.includes(output)) output = outputs[0] ?? null;
    const with_output = cases.filter((one) => one.outputs[output]?.over_time);
    const groups = grouped(with_output, rowLabel);
    const worst = (list) => Math.max(...list.map((one) => drawn(one.outputs[output].ratio)));
    if (!groups.has(shape))
      shape = groups.size === 0 ? null : [...groups].reduce((a, b) => (worst(b[1]) > worst(a[1]) ? b : a))[0];
    controls.replaceChildren();
    below.replaceChildren();
    figure.hidden = shape === null;
    if (shape === null) {
      below.append(element('p', {}, 'No selected case has errors over time.'));
      return;
    }
    const select = (title, values, value, set) => choice(title, values, value, (to) => {
      set(to);
      update();
      [...controls.querySelectorAll('select')][title === 'Output' ? 0 : 1].focus();
    });
    controls.append(select('Output', outputs, output, (to) => (output = to)),
      select('Shape', [...groups.keys()], shape, (to) => (shape = to)));
    const shown = groups.get(shape);
    const series = kSeries.filter((name) => shown.some((one) => one.series === name));
    const find = (name) => shown.find((one) => one.series === name);
    const log = worst(shown) > 2;
    draw(lineChart(series, (name) => profileOf(find(name), output).map(({ x, y }) => ({ x, y: log ? Math.max(y, 1e-6) : y })),
      () => axis('time step', 'linear', { min: 0, max: find(series[0]).outputs[output].steps }),
      () => axis('error / tolerance', log ? 'log' : 'linear', log ? { suggestedMax: 2 } : { min: 0, suggestedMax: 1.05 }),
      { stepped: 'before', marked: { axis: 'y', value: 1, text: 'tolerance' } }), 340);
    const spans = find(series[0]).outputs[output].first;
    below.append(dataTable('errors over time', [
      { name: 'From step', numeric: true, of: (place) => String(spans[place]) },
      ...series.map((name) => ({
        name,
        numeric: true,
        of: (place) => number(find(name).outputs[output].over_time[place] ?? Infinity),
      })),
    ], spans.map((_, place) => place)));
  };
  return update;
}
