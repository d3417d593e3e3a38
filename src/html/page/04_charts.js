'use strict';

/** False in a build without Chart.js: then there are tables only. */
const hasCharts = typeof Chart !== 'undefined';
const kNoCharts = 'Charts need Chart.js; this ssmbench was built without it.';

if (hasCharts) {
  Chart.defaults.animation = false;
  Chart.defaults.maintainAspectRatio = false;
  Chart.defaults.font.family = 'system-ui, sans-serif';
  Chart.defaults.font.size = 12;
}

const charts = [];

/** Whiskers from dataset.intervals, an element [low, high] per bar, along the axis of values. */
const whiskers = {
  id: 'whiskers',
  afterDatasetsDraw(chart) {
    const scale = chart.scales.x;
    const pen = chart.ctx;
    pen.save();
    pen.strokeStyle = theme().ink;
    pen.lineWidth = 1.5;
    chart.data.datasets.forEach((dataset, index) => {
      if (!dataset.intervals || !chart.isDatasetVisible(index)) return;
      chart.getDatasetMeta(index).data.forEach((bar, place) => {
        const interval = dataset.intervals[place];
        if (!interval) return;
        const [low, high] = interval.map((value) => scale.getPixelForValue(value));
        const end = Math.min(4, bar.height / 2);
        pen.beginPath();
        pen.moveTo(low, bar.y);
        pen.lineTo(high, bar.y);
        for (const x of [low, high]) {
          pen.moveTo(x, bar.y - end);
          pen.lineTo(x, bar.y + end);
        }
        pen.stroke();
      });
    });
    pen.restore();
  },
};

/** A line across at plugins.mark = {axis, value, text}. */
const mark = {
  id: 'mark',
  afterDatasetsDraw(chart, _, options) {
    if (options.value === undefined) return;
    const { left, right, top, bottom } = chart.chartArea;
    const at = chart.scales[options.axis].getPixelForValue(options.value);
    if (at < (options.axis === 'x' ? left : top) || at > (options.axis === 'x' ? right : bottom)) return;
    const pen = chart.ctx;
    pen.save();
    pen.strokeStyle = theme().ink;
    pen.setLineDash([6, 4]);
    pen.beginPath();
    pen.moveTo(options.axis === 'x' ? at : left, options.axis === 'x' ? top : at);
    pen.lineTo(options.axis === 'x' ? at : right, options.axis === 'x' ? bottom : at);
    pen.stroke();
    pen.font = '12px system-ui, sans-serif';
    pen.textAlign = 'right';
    const [x, y] = options.axis === 'x' ? [at - 4, top + 12] : [right - 4, at - 4];
    const { width } = pen.measureText(options.text);
    pen.fillStyle = theme().paper;
    pen.fillRect(x - width - 2, y - 11, width + 4, 14);
    pen.fillStyle = theme().ink;
    pen.fillText(options.text, x, y);
    pen.restore();
  },
};

if (hasCharts) Chart.register(whiskers, mark);

/** The powers of ten, and 2 and 5 times them where the range is small. */
function logTick(value) {
  const exponent = Math.floor(Math.log10(value) + 1e-9);
  const digit = +(value / 10 ** exponent).toPrecision(6);
  if (digit !== 1 && (this.max / this.min > 1e3 || (digit !== 2 && digit !== 5))) return '';
  return value >= 1e-3 && value < 1e5 ? String(+value.toPrecision(3)) : `${digit}e${exponent}`;
}

/** Where a logarithmic axis begins and ends. */
function logLimits(values, room = 1.5) {
  const positive = values.filter((value) => value > 0 && Number.isFinite(value));
  return positive.length ? { min: Math.min(...positive) / room, max: Math.max(...positive) * room } : {};
}

/** An axis. `type` is linear, log, doubling (log with a tick at each of `at`, unless they are many) or category. */
function axis(title, type, { at, ...options } = {}) {
  const { ink, faint, grid } = theme();
  const made = {
    title: { display: true, text: title, color: ink },
    ticks: { color: faint },
    grid: { color: grid, borderColor: faint },
    ...options,
  };
  if (type === 'category') return { ...made, type, ticks: { ...made.ticks, autoSkip: false }, grid: { display: false } };
  if (type === 'linear') return { ...made, type };
  made.ticks.callback = logTick;
  if (type === 'doubling' && at.length <= 16) {
    made.ticks = { color: faint, callback: (value) => String(value) };
    made.afterBuildTicks = (scale) => (scale.ticks = at.map((value) => ({ value })));
    Object.assign(made, logLimits(at, 1.1));
  }
  return { ...made, type: 'logarithmic' };
}

/** A chart with its caption. `draw(config)` takes a function that makes Chart.js's configuration, so that it
 *  can be made again in other colours, and the height in pixels. */
function chartFigure(label, caption) {
  const canvas = element('canvas', { role: 'img', 'aria-label': `${label}; the table below has the numbers` });
  const box = element('div', { class: hasCharts ? 'chart' : 'note' }, hasCharts ? canvas : kNoCharts);
  const figure = element('figure', {}, box, element('figcaption', {}, caption));
  const entry = { chart: null, make: null };
  charts.push(entry);
  const draw = (make, height) => {
    if (!hasCharts) return;
    entry.make = make;
    entry.chart?.destroy();
    box.style.height = `${height}px`;
    const config = make();
    const { ink, paper } = theme();
    config.options.color = ink;
    config.options.plugins = {
      legend: { labels: { color: ink, usePointStyle: config.type !== 'bar', boxHeight: 8 } },
      ...config.options.plugins,
    };
    config.options.plugins.tooltip = { backgroundColor: ink, titleColor: paper, bodyColor: paper, ...config.options.plugins.tooltip };
    entry.chart = new Chart(canvas, config);
  };
  entry.redraw = () => entry.make && draw(entry.make, parseFloat(box.style.height));
  return { figure, canvas, draw };
}

function redrawAll() {
  for (const entry of charts) entry.redraw();
}

prefersDark.addEventListener('change', redrawAll);
for (const [event, value] of [['beforeprint', true], ['afterprint', false]])
  window.addEventListener(event, () => {
    printing = value;
    redrawAll();
  });

/** Horizontal bars: `rows` are the labels; `value(row, series)` is {value, interval} or nothing. */
function barChart(rows, series, value, { title, log, marked, limits = {} }) {
  return () => ({
    type: 'bar',
    data: {
      labels: rows,
      datasets: series.map((name) => {
        const style = lookOf(name);
        const values = rows.map((row) => value(row, name));
        return {
          label: name,
          data: values.map((each) => each?.value ?? null),
          intervals: values.map((each) => each?.interval),
          backgroundColor: style.fill,
          borderColor: style.color,
          borderWidth: 1,
          skipNull: true,
        };
      }),
    },
    options: {
      indexAxis: 'y',
      scales: { x: axis(title, log ? 'log' : 'linear', limits), y: axis('', 'category', { title: { display: false } }) },
      plugins: { mark: marked ?? {} },
    },
  });
}

function barHeight(rows, series) {
  return 90 + rows.length * (10 + 14 * series.length);
}

/** Lines with markers: `points(series)` are {x, y}. */
function lineChart(series, points, x, y, { marked, style = lookOf, stepped = false, extra = [] } = {}) {
  return () => ({
    type: 'line',
    data: {
      datasets: [
        ...series.map((name) => ({
          label: name,
          data: points(name),
          borderColor: style(name).color,
          backgroundColor: style(name).color,
          borderDash: style(name).dash,
          pointStyle: style(name).marker,
          pointRadius: 5,
          borderWidth: 2,
          stepped,
        })),
        ...extra.map((make) => make()),
      ],
    },
    options: { scales: { x: x(), y: y() }, plugins: { mark: marked ?? {} } },
  });
}
