'use strict';

function complexText([real, imaginary]) {
  return imaginary === 0 ? String(real) : `${real}${imaginary < 0 ? '−' : '+'}${Math.abs(imaginary)}i`;
}

function limitText(limit) {
  return limit === null ? 'none' : number(limit);
}

function addConvergence() {
  const made = section('Convergence of the methods',
    'h′ = A·h + sin(t), solved in fp64 with ever smaller steps Δ: the error of a method of order p falls like Δ to the power p. ' +
    'The stability limit is the largest Δ·|A| at which no solution grows.');
  const controls = element('div', { class: 'controls' });
  const { figure, draw } = chartFigure('Lines of the discretization error over the step size, both logarithmic',
    'Largest error over all steps, relative to the largest |h|; both axes logarithmic. The steeper, the higher the order.');
  const below = element('div');
  made.append(controls, figure, below);
  const title = (study) => (data.files.length > 1 ? `${data.files[study.file].name}, ` : '') + `A = ${complexText(study.A)}`;
  const groups = grouped(data.convergence, title);
  const names = distinct(data.convergence, (study) => study.method);
  let group = [...groups.keys()][0];
  const update = () => {
    const studies = groups.get(group);
    if (groups.size > 1)
      controls.replaceChildren(choice('Equation', [...groups.keys()], group, (value) => {
        group = value;
        update();
        controls.querySelector('select').focus();
      }));
    const points = (name) => studies.find((study) => study.method === name).runs
      .filter(([, error]) => error !== null && error > 0 && error < 1e6).map(([x, y]) => ({ x, y }));
    const methods = studies.map((study) => study.method);
    const all = methods.flatMap(points);
    draw(lineChart(methods, points, () => axis('step size Δ', 'log', logLimits(all.map(({ x }) => x))),
      () => axis('error', 'log', logLimits(all.map(({ y }) => y))), { style: (name) => look(names.indexOf(name)) }), 460);
    below.replaceChildren(table(`Orders and stability limits, ${group}`, [
      { name: 'Method', of: (study) => study.method },
      { name: 'Order in theory', numeric: true, of: (study) => String(study.order[0]) },
      { name: 'measured', numeric: true, of: (study) => number(study.order[1]) },
      { name: 'Limit Δ|A| in theory', numeric: true, of: (study) => limitText(study.limit[0]) },
      { name: 'measured', numeric: true, of: (study) => limitText(study.limit[1]) },
      { name: 'Error, largest Δ', numeric: true, of: (study) => number(study.runs[0][1] ?? Infinity) },
      { name: 'smallest Δ', numeric: true, of: (study) => number(study.runs[study.runs.length - 1][1] ?? Infinity) },
      { name: 'f32 rounding, smallest Δ', numeric: true, of: (study) => number(study.runs[study.runs.length - 1][2] ?? Infinity) },
    ], studies));
  };
  update();
}
