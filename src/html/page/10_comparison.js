'use strict';

const kPairsAtOnce = 30;

/** Cases of the first file beside the same of the others: [{base, one, ratio, interval}]. */
function pairs(cases) {
  const key = (one) => JSON.stringify([one.id, one.impl, one.device]);
  const base = new Map(data.cases.filter((one) => one.file === 0).map((one) => [key(one), one]));
  return cases.filter((one) => one.file > 0 && base.has(key(one))).map((one) => {
    const [before, after] = [base.get(key(one)).timing?.[timingKind], one.timing?.[timingKind]];
    const comparable = before && after;
    return {
      base: base.get(key(one)),
      one,
      ratio: comparable ? after[0] / before[0] : null,
      interval: comparable ? [after[1] / before[2], after[2] / before[1]] : null,
    };
  });
}

function addComparison() {
  const made = section('Comparison of files',
    `Median times over those in ${data.files[0].name}: below 1 is faster. Whiskers are the extremes that the confidence ` +
    'intervals of the two medians allow. This shows differences; ssmbench gate decides whether they are real.');
  const { figure, draw } = chartFigure('Bars of the ratio of times to the first file', '');
  const below = element('div');
  made.append(figure, below);
  return () => {
    const all = pairs(chosenCases());
    const timedPairs = all.filter((pair) => pair.ratio !== null)
      .sort((a, b) => Math.abs(Math.log(b.ratio)) - Math.abs(Math.log(a.ratio)));
    const name = (pair) => `${pair.one.impl} ${rowLabel(pair.one)}`;
    const rows = distinct(timedPairs, name).slice(0, kPairsAtOnce);
    const series = kSeries.filter((each) => timedPairs.some((pair) => pair.one.series === each));
    const find = (row, each) => {
      const pair = timedPairs.find((candidate) => name(candidate) === row && candidate.one.series === each);
      return pair && { value: pair.ratio, interval: pair.interval };
    };
    figure.hidden = rows.length === 0;
    figure.querySelector('figcaption').textContent =
      `The ${rows.length} largest differences of ${timedPairs.length}. The dashed line is no change.`;
    if (rows.length > 0)
      draw(barChart(rows, series, find, {
        title: 'time / time in the first file',
        marked: { axis: 'x', value: 1, text: 'same' },
        limits: { suggestedMax: Math.max(...timedPairs.slice(0, rows.length).flatMap((pair) => pair.interval)) },
      }), barHeight(rows, [1]));
    const changed = all.filter((pair) => pair.base.status !== pair.one.status);
    const columns = [
      { name: 'Implementation', of: (pair) => pair.one.series },
      { name: 'Case', of: (pair) => element('code', {}, pair.one.id) },
      { name: 'Status before', of: (pair) => statusMark(pair.base.status) },
      { name: 'Status', of: (pair) => statusMark(pair.one.status) },
      { name: 'Cause', optional: true, of: (pair) => pair.one.cause ?? '' },
      { name: 'ms before', numeric: true, optional: true, of: (pair) => number(pair.base.timing?.[timingKind]?.[0]) },
      { name: 'ms', numeric: true, optional: true, of: (pair) => number(pair.one.timing?.[timingKind]?.[0]) },
      { name: 'ratio', numeric: true, optional: true, of: (pair) => number(pair.ratio) },
      { name: 'err/tol before', numeric: true, of: (pair) => number(worstRatio(pair.base)) },
      { name: 'err/tol', numeric: true, of: (pair) => number(worstRatio(pair.one)) },
    ];
    below.replaceChildren();
    if (all.length === 0) below.append(element('p', {}, 'The files have no selected case in common.'));
    if (changed.length > 0) below.append(table('Cases whose status changed', columns, changed));
    if (all.length > 0) below.append(dataTable('all cases that the files have in common', columns, all));
  };
}
