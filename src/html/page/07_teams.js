'use strict';

/** What teams of ranks gain: strong scaling, since a case is the same however many ranks compute it. */
function addTeams() {
  const made = section('Teams of ranks',
    'Speed-up over the fastest implementation that passed on one device in the same run; efficiency is that over the ' +
    'number of ranks. Times are those of the rank that takes longest. All devices, whichever is chosen above.');
  const below = element('div');
  made.append(below);
  const optional = (name, of) => ({ name, numeric: true, optional: true, of });
  return () => {
    const isChosen = (one, name) => name === 'device' || chosen[name] === kAll || one[name] === chosen[name];
    const cases = data.cases.filter((one) => one.team && kFilters.every(({ name }) => isChosen(one, name)))
      .sort((a, b) => rowLabel(a).localeCompare(rowLabel(b)) || a.impl.localeCompare(b.impl) || a.team.ranks - b.team.ranks);
    below.replaceChildren(cases.length > 0 ? table('teams', [
      { name: 'Shape', of: (one) => one.shape },
      { name: 'Type', of: (one) => one.dtype },
      { name: 'Options', of: (one) => one.options },
      { name: 'Implementation', of: (one) => one.impl },
      { name: 'Ranks', numeric: true, of: (one) => String(one.team.ranks) },
      optional('median ms', (one) => number(one.timing?.hot?.[0])),
      optional('Speed-up', (one) => number(one.team.speedup)),
      { name: 'Over', optional: true, of: (one) => one.team.over ?? '' },
      optional('Efficiency', (one) => percent(one.team.efficiency)),
      optional('Exchange ms', (one) => number(one.team.exchange)),
      { name: 'Bytes sent', numeric: true, of: (one) => String(one.team.sent) },
      optional('Steps twice', (one) => String(one.team.rerun ?? '')),
    ], cases) : element('p', {}, 'No selected case was computed by a team.'));
  };
}
