'use strict';

// After Okabe and Ito (2008), who chose colours that stay apart for colour-blind readers; made darker on white and
// lighter on black, so that each has a contrast of 3:1 or more. Markers, dashes and fills differ too.
const kColors = {
  light: ['#0072b2', '#d55e00', '#00855f', '#a8447f', '#8f6b00', '#3a8fc4', '#555555', '#882255'],
  dark: ['#56b4e9', '#ff9e5a', '#3cc99b', '#e8a0cc', '#f0e442', '#a6c8ff', '#c8ccd2', '#ff7fa5'],
};
const kMarkers = ['circle', 'triangle', 'rect', 'rectRot', 'crossRot', 'star', 'cross', 'rectRounded'];
const kDashes = [[], [8, 4], [2, 3], [10, 3, 2, 3]];

const prefersDark = window.matchMedia('(prefers-color-scheme: dark)');
let printing = false;

/** Colours of what is not data; paper is white. */
function theme() {
  return prefersDark.matches && !printing
    ? { name: 'dark', ink: '#e8eaed', faint: '#a9b2bd', grid: '#3b434e', paper: '#14171c' }
    : { name: 'light', ink: '#1b1f24', faint: '#57606a', grid: '#d0d7de', paper: '#ffffff' };
}

/** What is drawn: an implementation, of a file where there are several. */
const kSeries = distinct(data.cases, (one) => one.series).sort();
const kImplementations = distinct(data.cases, (one) => one.impl).sort();

/** What the series of this place looks like, and the `variant` of it. */
function look(index, variant = 0) {
  const colors = kColors[theme().name];
  const color = colors[index % colors.length];
  return {
    color,
    marker: kMarkers[(index + 3 * Math.floor(index / colors.length)) % kMarkers.length],
    dash: kDashes[(Math.floor(index / colors.length) + variant) % kDashes.length],
    fill: fillPattern(color, data.files.length > 1 ? variant : index),
  };
}

/** The same in every chart: an implementation has its colour and marker, a file its dashes and fill. */
function lookOf(series) {
  const one = data.cases.find((each) => each.series === series);
  return look(kImplementations.indexOf(one.impl), one.file);
}

/** The colour alone, or with stripes or dots of paper over it. */
function fillPattern(color, index) {
  const kind = index % 5;
  if (kind === 0) return color;
  const tile = element('canvas', { width: 8, height: 8 });
  const pen = tile.getContext('2d');
  pen.fillStyle = color;
  pen.fillRect(0, 0, 8, 8);
  pen.strokeStyle = pen.fillStyle = theme().paper;
  pen.lineWidth = 1.5;
  const line = (...points) => {
    pen.beginPath();
    pen.moveTo(points[0], points[1]);
    pen.lineTo(points[2], points[3]);
    pen.stroke();
  };
  if (kind === 1) [-8, 0, 8].forEach((shift) => line(shift, 8, shift + 8, 0));
  if (kind === 2) [-8, 0, 8].forEach((shift) => line(shift, 0, shift + 8, 8));
  if (kind === 3) line(4, 0, 4, 8);
  if (kind === 4) pen.fillRect(3, 3, 2.5, 2.5);
  return pen.createPattern(tile, 'repeat');
}
