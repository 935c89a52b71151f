// How the jobs of the last day would have waited under other limits.
import assert from 'node:assert/strict';
import { base, given, scenario } from '../lib/scenario.mjs';
import { accessible, colours, fits } from '../lib/rules.mjs';
import * as at from '../lib/page.mjs';

const { queue, unknown, hostile } = given;
const address = `queues/${queue}/trial`;
const text = async (locator) => (await locator.innerText()).replace(/\s+/g, ' ').trim();
const rows = async (page, name) => Promise.all((await page.getByRole('table', { name }).locator('tbody tr').all()).map(async (row) => Promise.all((await row.locator('td[data-label]').all()).map(text))));
const injected = 'main :is(script, img, iframe, style)';
const published = async () => (await (await fetch(`${base}/api/v1/queues/${queue}/limits/file`)).json()).file;

// others makes the limit per tenant half as fast, without a burst, and gives the shared one another name.
function others(file) {
  const changed = file.replace('name: account', 'name: shared').replace('rate: 1/s', 'rate: 30/min').replace('burst: 3', 'burst: 1');
  assert.equal(changed.split('\n').filter((line, i) => line !== file.split('\n')[i]).length, 3, file);
  return changed;
}

async function tryFile(page, file) {
  await page.getByLabel('Limits file').fill(file);
  await page.getByRole('button', { name: 'Try', exact: true }).click();
}

// tried tries a file, and returns the server's answer. How long jobs waited depends on the machine:
// the page is held against the answer, and the answer's figures have tests of their own.
async function tried(page, file) {
  const [response] = await Promise.all([page.waitForResponse('**/trial'), tryFile(page, file)]);
  return response.json();
}

// about asserts that a text is a wait of so many seconds, to three digits, with what follows it.
function about(got, seconds, rest = '') {
  const [, n, unit, after] = /^([\d.]+) (ms|s)(.*)$/.exec(got) ?? assert.fail(`${got} is not a wait`);
  assert.ok(Math.abs(n / (unit === 'ms' ? 1000 : 1) - seconds) <= Math.max(0.001, seconds / 100), `${got}, want ${seconds} s`);
  assert.equal(after.trim(), rest);
}

scenario('other limits are tried', async (page) => {
  const before = await published();
  await at.visit(page, at.limits(queue));
  await page.getByRole('link', { name: 'Try other limits' }).click();
  await page.getByRole('heading', { name: 'Try limits', level: 1 }).waitFor();
  await page.getByText('A trial changes nothing in the queue.').waitFor();
  assert.equal(await page.getByLabel('Limits file').inputValue(), before);
  assert.equal(await page.getByLabel('Queue').inputValue(), queue);

  let release;
  const released = new Promise((done) => { release = done; });
  await page.route('**/trial', async (route) => { await released; await route.continue(); });
  const answer = tried(page, others(before));
  await page.getByRole('status').filter({ hasText: 'Replaying the calls of the last day.' }).waitFor();
  assert.equal(await page.getByRole('button', { name: 'Try', exact: true }).isDisabled(), true);
  release();
  const trial = await answer;
  const sentence = page.getByRole('status').filter({ hasText: 'Replayed' });
  await sentence.waitFor();
  assert.match(await text(sentence), /^Replayed 11 calls from \d\d:\d\d(:\d\d)? to \d\d:\d\d(:\d\d)?, including the first calls of 11 jobs\.$/);
  assert.equal(await page.getByRole('button', { name: 'Try', exact: true }).isDisabled(), false);

  const waits = await rows(page, 'Waits, measured, now and then');
  assert.deepEqual(waits.map(([what]) => what), ['Half of the jobs', '95 % of the jobs', '99 % of the jobs', 'Longest wait']);
  for (const [i, which] of ['p50_seconds', 'p95_seconds', 'p99_seconds', 'max_seconds'].entries()) {
    assert.ok(trial.proposed[which] >= trial.in_force[which], `${which} of ${JSON.stringify(trial)}`);
    for (const [j, of] of [trial.measured, trial.in_force, trial.proposed].entries()) about(waits[i][j + 1], of[which]);
  }
  const parts = await page.getByRole('table', { name: 'Waits, measured, now and then' }).locator('tr', { hasText: '95 %' }).locator('.bar').evaluateAll((bars) => bars.map((bar) => Number(bar.style.getPropertyValue('--part'))));
  assert.equal(parts.length, 3);
  const waited = [trial.measured, trial.in_force, trial.proposed].map((of) => of.p95_seconds), longest = Math.max(...waited);
  for (const [i, of] of waited.entries()) assert.ok(Math.abs(parts[i] - of / longest) < 0.01, `bars of ${parts}`);

  const [account, tenant, inFlight, shared, ...more] = await rows(page, 'Limits, now and then');
  assert.deepEqual(more, []);
  const used = (got, part) => assert.ok(/^\d+ %$/.test(got) && Math.abs(parseInt(got) - part * 100) <= 1, `${got} used, want ${part * 100} %`);
  const named = (of, name) => of.limits.find((limit) => limit.name === name);
  assert.equal(account[0], 'account');
  used(account[1], named(trial.in_force, 'account').used);
  assert.equal(account[2], 'no limit');
  assert.deepEqual([account[4], account[6]], ['–', '–']);
  assert.deepEqual(tenant.slice(0, 3), ['tenant', '–', '–']);
  about(tenant[3], named(trial.in_force, 'tenant').held_seconds);
  about(tenant[4], named(trial.proposed, 'tenant').held_seconds);
  assert.deepEqual(tenant.slice(5), ['2', '2']);
  assert.deepEqual(inFlight, ['in-flight', '–', '–', '–', '–', '–', '–']);
  assert.deepEqual([shared[0], shared[1], shared[3], shared[5]], ['shared', 'no limit', '–', '–']);
  used(shared[2], named(trial.proposed, 'shared').used);
  await page.getByText('The model leaves out in-flight:').waitFor();

  const tenants = await rows(page, 'Tenants, measured, now and then');
  assert.deepEqual(tenants.map(([name, jobs]) => [name, jobs]), [['acme', '6'], [hostile, '4'], ['umbrella', '1']]);
  assert.deepEqual([trial.tenants[0].held_by, trial.tenants[0].would_hold_by], ['tenant', 'tenant']);
  for (const [i, { measured, in_force, proposed, held_by, would_hold_by }] of trial.tenants.entries()) {
    about(tenants[i][2], measured.p95_seconds);
    about(tenants[i][3], in_force.p95_seconds, held_by ? `held by ${held_by}` : '');
    about(tenants[i][4], proposed.p95_seconds, would_hold_by ? `held by ${would_hold_by}` : '');
  }
  assert.equal(await page.locator(injected).count(), 0);
  await accessible(page, 'trial');
  await fits(page, 'trial');
  assert.equal(await published(), before);
});

// The published limits have no such names, nor so many tenants: the answer of the server is changed.
scenario('names, and more tenants', async (page) => {
  await page.route('**/trial', async (route) => {
    const response = await route.fetch(), trial = await response.json();
    trial.in_force.limits[0].name = trial.tenants[0].held_by = hostile;
    trial.not_counted = [hostile, 'in-flight'];
    trial.full_rate = [hostile, 'account'];
    trial.total = 25;
    await route.fulfill({ response, json: trial });
  });
  await at.visit(page, address);
  const trial = await tried(page, await published());
  await page.getByText('Replayed').waitFor();
  const [first] = await rows(page, 'Tenants, measured, now and then');
  about(first[3], trial.tenants[0].in_force.p95_seconds, `held by ${hostile}`);
  assert.equal((await rows(page, 'Limits, now and then'))[0][0], hostile);
  assert.match(await text(page.getByText(/^The model leaves out/)), /, in-flight: it does not know/);
  assert.match(await text(page.getByText(/^Tried at the full rate/)), /, account\. The model knows/);
  await page.getByText('Not shown: 22 more tenants.').waitFor();
  assert.equal(await page.locator(injected).count(), 0);
  await fits(page, 'trial');
});

scenario('what was typed is kept', async (page) => {
  const before = await published(), typed = others(before);
  await at.visit(page, address);
  await tryFile(page, typed);
  await page.getByText('Replayed').waitFor();
  await page.getByLabel('Limits file').pressSequentially('# later');
  await page.getByText('You have changed the limits file since this trial.').waitFor();
  await at.visit(page, at.limits(queue));
  await at.visit(page, address);
  assert.match(await page.getByLabel('Limits file').inputValue(), /# later/);
  await page.getByRole('button', { name: 'Reset' }).click();
  assert.equal(await page.getByLabel('Limits file').inputValue(), before);
});

scenario('mistakes of a file', { allow: [/status of 400/] }, async (page) => {
  await at.visit(page, address);
  const lines = (await published()).split('\n'), [first, last] = [lines.findIndex((line) => line.includes('rate: 50/s')), lines.findIndex((line) => line.includes('burst: 3'))];
  assert.ok(first > 0 && last > first, lines.join('\n'));
  lines[first] = lines[first].replace('50/s', '50/sek');
  lines[last] = lines[last].replace('burst', 'bursts');
  await tryFile(page, lines.join('\n'));
  const alert = page.getByRole('alert');
  await alert.getByText('2 mistakes in the limits file').waitFor();
  const items = await Promise.all((await alert.getByRole('listitem').all()).map(text));
  assert.equal(items.length, 2);
  assert.match(items[0], new RegExp(`^Line ${first + 1}: .*"50/sek"`));
  assert.match(items[1], new RegExp(`^Line ${last + 1}: .*bursts`));
  assert.equal(await page.getByLabel('Limits file').getAttribute('aria-invalid'), 'true');
  await accessible(page, 'mistakes');
  await fits(page, 'mistakes');
  await alert.getByRole('button', { name: `Line ${last + 1}` }).press('Enter');
  assert.equal(await page.evaluate(() => { const { value, selectionStart, selectionEnd } = document.activeElement; return value.slice(selectionStart, selectionEnd); }), lines[last]);

  await tryFile(page, (await published()).replaceAll(queue, 'another'));
  await alert.getByText(`the proposed limits have no queue "${queue}"`).waitFor();
  await tryFile(page, await published());
  await page.getByText('Replayed').waitFor();
  assert.equal(await alert.count(), 0);
});

scenario('no calls are known', async (page) => {
  await at.visit(page, `queues/${unknown}/trial`);
  await page.getByRole('button', { name: 'Try', exact: true }).click();
  await page.getByRole('heading', { name: 'No calls of the last day are known' }).waitFor();
  await page.getByText('while its published limits file says conformance: true').waitFor();
  assert.equal(await page.getByRole('table').count(), 0);
});

for (const [theme, width] of [['dark', 1280], ['light', 375]]) {
  scenario(`${theme}, ${width} px`, { theme, width }, async (page) => {
    await at.visit(page, address);
    await tryFile(page, others(await published()));
    await page.getByText('Replayed').waitFor();
    await accessible(page, 'trial', theme === 'dark' ? colours : undefined);
    await fits(page, 'trial');
  });
}
