'use strict';

function addCharts() {
  const updates = [];
  const update = () => updates.forEach((each) => each());
  chooseFrom('op');
  const bar = filterBar(update);
  document.getElementById('content').append(bar);
  const kinds = timingKinds();
  timingKind = kinds[0] ?? 'hot';
  if (kinds.length > 1)
    bar.querySelector('.controls').after(choice('Timing', kinds, timingKind, (value) => {
      timingKind = value;
      update();
    }, (kind) => kTimingNames[kind]));
  if (kinds.length > 0) updates.push(addShapes(), addScaling(), addRoofline());
  if (data.cases.some((one) => one.team)) updates.push(addTeams());
  updates.push(addErrors(), addErrorOverTime());
  if (data.files.length > 1) updates.push(addComparison());
  update();
}

addSummary();
if (data.cases.length > 0) addCharts();
if (data.convergence.length > 0) addConvergence();
document.getElementById('made-by').textContent = hasCharts
  ? `Made by ssmbench ${data.version} with Chart.js ${Chart.version}. This page loads nothing from elsewhere.`
  : `Made by ssmbench ${data.version}. ${kNoCharts} This page loads nothing from elsewhere.`;
document.getElementById('chart-licence').hidden = !hasCharts;
document.documentElement.dataset.drawn = 'true';
