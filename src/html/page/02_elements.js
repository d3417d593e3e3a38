'use strict';

const kRowsAtOnce = 200;

/** An element with attributes and children. What comes from records is only ever added as text. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** A number for people: four digits. */
function number(value) {
  if (value === null || value === undefined) return '';
  if (!Number.isFinite(value)) return 'not finite';
  const size = Math.abs(value);
  if (value === 0) return '0';
  if (size >= 1e6 || size < 1e-3) return value.toExponential(3);
  return size >= 1000 ? String(Math.round(value)) : value.toPrecision(4);
}

function percent(value) {
  return value === null || value === undefined ? '' : `${(100 * value).toFixed(1)}%`;
}

function statusMark(status) {
  const marks = { pass: '✓', fail: '✗', error: '‼', invalid: '⚠', unverified: '?' };
  return element('span', { class: status }, `${marks[status] ?? ''} ${status}`);
}

let sectionCount = 0;

/** A section under a heading that the contents link to. */
function section(title, ...introduction) {
  const id = `section-${++sectionCount}`;
  const made = element('section', { id, 'aria-labelledby': `${id}-title` });
  made.append(element('h2', { id: `${id}-title` }, title), ...introduction.map((text) => element('p', {}, text)));
  document.getElementById('content').append(made);
  let list = document.querySelector('#contents ul');
  if (!list) document.getElementById('contents').append((list = element('ul')));
  list.append(element('li', {}, element('a', { href: `#${id}` }, title)));
  return made;
}

/** A choice among values. `changed` is called with the value that was chosen. */
function choice(title, values, chosen, changed, label = (value) => value) {
  const select = element('select');
  for (const value of values) {
    const option = element('option', { value }, label(value));
    option.selected = value === chosen;
    select.append(option);
  }
  select.addEventListener('change', () => changed(select.value));
  return element('label', {}, `${title} `, select);
}

/** Rows as a table that can be scrolled with the keyboard. A column is {name, of(row), numeric}. Of thousands of
 *  rows only the first are made, and more on demand: a browser takes long over the rest. */
function table(caption, columns, rows) {
  const used = columns.filter((column) => !column.optional || rows.some((row) => column.of(row) !== ''));
  const head = element('tr');
  for (const column of used)
    head.append(element('th', { scope: 'col', ...(column.numeric && { class: 'number' }) }, column.name));
  const body = element('tbody');
  const made = element('table', {}, element('caption', {}, caption), element('thead', {}, head), body);
  const box = element('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': caption }, made);
  const whole = element('div', {}, box);
  const more = element('button', { type: 'button' });
  let shown = 0;
  const show = () => {
    for (const row of rows.slice(shown, shown + kRowsAtOnce)) {
      const line = element('tr');
      for (const column of used)
        line.append(element('td', column.numeric ? { class: 'number' } : {}, column.of(row)));
      body.append(line);
    }
    shown = Math.min(rows.length, shown + kRowsAtOnce);
    more.textContent = `Show more: ${rows.length - shown} of ${rows.length} rows are left`;
    if (shown === rows.length) more.remove();
  };
  show();
  if (shown < rows.length) whole.append(more);
  more.addEventListener('click', show);
  return whole;
}

/** The same behind a disclosure, for what a chart shows already. */
function dataTable(caption, columns, rows) {
  return element('details', {}, element('summary', {}, `Table: ${caption}`), table(caption, columns, rows));
}
