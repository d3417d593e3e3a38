'use strict';

function countOf(status, file, op) {
  if (status === 'skip')
    return data.skips.filter((skip) => skip.file === file && skip.op === op).reduce((sum, skip) => sum + skip.count, 0);
  return data.cases.filter((one) => one.file === file && one.op === op && one.status === status).length;
}

function statusTable() {
  const rows = data.files.flatMap((file, index) =>
    distinct([...data.cases, ...data.skips].filter((one) => one.file === index), (one) => one.op)
      .map((op) => ({ file: file.name, index, op })));
  const columns = [
    { name: 'File', of: (row) => row.file },
    { name: 'Operation', of: (row) => row.op },
    ...[...kDecided, 'skip'].map((status) => ({
      name: status,
      numeric: true,
      of: (row) => String(countOf(status, row.index, row.op)),
    })),
  ];
  return table('Cases by status', columns, rows);
}

function fileTable() {
  const devices = (file) => Object.entries(file.devices).map(([id, about]) => `${id}: ${about.name ?? ''}`).join('; ');
  return table('Results files', [
    { name: 'File', of: (file) => file.name },
    { name: 'Started', of: (file) => file.started },
    { name: 'Devices', of: devices },
    { name: 'Revision', of: (file) => (file.build.git_revision ?? '').replace(/^([0-9a-f]{10})[0-9a-f]+/, '$1'), optional: true },
    { name: 'Command', of: (file) => element('code', {}, file.argv.join(' ')) },
  ], data.files);
}

/** Every case that did not pass, the worst first. */
function problemTable(problems) {
  return table('Cases that did not pass', [
    { name: 'Status', of: (one) => statusMark(one.status) },
    { name: 'Implementation', of: (one) => one.series },
    { name: 'Device', of: (one) => one.device },
    { name: 'Case', of: (one) => element('code', {}, one.id) },
    { name: 'Cause', of: (one) => one.cause ?? '', optional: true },
    { name: 'Reason', of: (one) => one.reason ?? '', optional: true },
    { name: 'Repro command', of: (one) => element('code', {}, one.repro ?? '') },
  ], problems);
}

function addSummary() {
  const order = ['error', 'invalid', 'fail', 'unverified'];
  const problems = data.cases.filter((one) => one.status !== 'pass')
    .sort((a, b) => order.indexOf(a.status) - order.indexOf(b.status));
  const passed = data.cases.length - problems.length;
  const verdict = document.getElementById('verdict');
  if (data.cases.length > 0) {
    verdict.textContent = problems.length === 0 ? `✓ All ${passed} cases passed` :
      `✗ ${problems.length} of ${data.cases.length} cases did not pass`;
    verdict.className = problems.length === 0 ? 'pass' : 'fail';
  }
  const made = section('Summary');
  made.append(fileTable());
  if (data.cases.length + data.skips.length > 0) made.append(statusTable());
  if (problems.length > 0) made.append(problemTable(problems));
  if (data.skips.length > 0)
    made.append(dataTable('skipped cases, by reason', [
      { name: 'File', of: (skip) => data.files[skip.file].name },
      { name: 'Operation', of: (skip) => skip.op },
      { name: 'Implementation', of: (skip) => skip.impl },
      { name: 'Cases', numeric: true, of: (skip) => String(skip.count) },
      { name: 'Cause', of: (skip) => skip.cause, optional: true },
      { name: 'Reason', of: (skip) => skip.reason },
    ], data.skips));
}
