'use strict';

const kAll = 'all';

/** What the charts are about. */
const chosen = { op: kAll, device: kAll, dtype: kAll, options: kAll };

const kFilters = [
  { name: 'op', title: 'Operation', wide: false },
  { name: 'device', title: 'Device', wide: true },
  { name: 'dtype', title: 'Data type', wide: true },
  { name: 'options', title: 'Options', wide: true },
];

/** Cases that pass the filters before the one with this name, or all of them. */
function chosenCases(before) {
  let cases = data.cases;
  for (const { name } of kFilters) {
    if (name === before) break;
    if (chosen[name] !== kAll) cases = cases.filter((one) => one[name] === chosen[name]);
  }
  return cases;
}

/** Sets this filter and those after it to what most of the cases have that are left. */
function chooseFrom(first) {
  const names = kFilters.map(({ name }) => name);
  for (const name of names.slice(names.indexOf(first))) {
    const cases = chosenCases(name);
    const timed = cases.filter((one) => one.timing);
    chosen[name] = mostCommon(timed.length ? timed : cases, (one) => one[name]) ?? kAll;
  }
}

/** A part of the page that says what is chosen and is the same for all charts; `changed` redraws them. */
function filterBar(changed) {
  const bar = element('form', { class: 'filters', 'aria-label': 'Filters of the charts below' });
  bar.addEventListener('submit', (event) => event.preventDefault());
  const controls = element('div', { class: 'controls' });
  const count = element('p', { role: 'status' });
  const fill = () => {
    controls.replaceChildren();
    for (const { name, title, wide } of kFilters) {
      const values = distinct(chosenCases(name), (one) => one[name]).sort();
      if (wide && values.length > 1) values.unshift(kAll);
      const label = (value) => (value === '' ? 'none' : value);
      const made = choice(title, values, chosen[name], (value) => {
        chosen[name] = value;
        const next = kFilters[kFilters.findIndex((filter) => filter.name === name) + 1];
        if (next && value !== kAll) chooseFrom(next.name);
        fill();
        controls.querySelector(`[data-filter="${name}"]`).focus();
        changed();
      }, label);
      made.querySelector('select').dataset.filter = name;
      controls.append(made);
    }
    count.textContent = `${chosenCases().length} of ${data.cases.length} cases. All charts below show these.`;
  };
  fill();
  bar.append(controls, count);
  return bar;
}

/** What tells cases apart that have the shape in common: empty where the filters leave one value. */
function beyondShape(one) {
  return ['dtype', 'device', 'options'].filter((name) => chosen[name] === kAll).map((name) => one[name]).join(' ');
}

function rowLabel(one) {
  return `${one.shape} ${beyondShape(one)}`.trim();
}
