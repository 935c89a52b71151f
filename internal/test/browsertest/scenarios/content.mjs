// What the pages of a tenant, of providers and of limits show for a known state.
import assert from 'node:assert/strict';
import { given, scenario } from '../lib/scenario.mjs';
import * as at from '../lib/page.mjs';

const { queue, receiver } = given;
const minute = 60_000;
const text = async (locator) => (await locator.innerText()).replace(/\s+/g, ' ').trim();
const texts = async (locator) => Promise.all((await locator.all()).map(text));
const stats = async (of) => Object.fromEntries(await Promise.all((await of.locator('.stats > div').all()).map(async (stat) => [await text(stat.locator('dt')), await text(stat.locator('dd'))])));
const card = (page, name) => page.getByRole('region', { name, exact: true });
const titled = (page, heading) => page.locator('section.card').filter({ has: page.getByRole('heading', { name: heading }) });

// sentence returns the sentence about a tenant, once the page has seen the worker: the list of
// workers is read every few seconds.
const sentence = async (page) => {
  const said = page.locator('.sentence').filter({ hasNotText: 'no worker serves' });
  await said.waitFor();
  return text(said);
};

// series returns the limits of a tenant in order, with what the page shows of each.
const series = async (page) => Promise.all((await page.locator('.series > li').all()).map(async (li) => ({
  name: await text(li.locator('h3 bdi')), marks: await texts(li.locator('h3 .badge')), rule: await text(li.locator('.rule')),
  left: await li.getByRole('meter').getAttribute('aria-valuetext'), said: await texts(li.locator('p:not(.rule)')),
})));

scenario('a tenant held by a limit', async (page) => {
  await at.visit(page, at.tenant(queue, 'acme'));
  assert.match(await sentence(page), /^acme’s webhook is held by limit “?tenant”? \(2\/h\), next slot in (30|29|28|27) min, 29 waiting, done at about \d\d:\d\d$/);
  const { 'Clears at': end, 'Kept in Redis': kept, ...said } = await stats(card(page, 'Summary'));
  assert.match(kept, /^2\d\.\d KiB 29 jobs, in all states$/); // the ports of URLs have four or five digits
  assert.deepEqual(said, { 'Waiting': '29', 'Rate': '2/h', 'Completed (total)': '1', 'Weight': '3' });
  assert.match(end, /^\d\d:\d\d rough$/);
  const all = await series(page);
  const next = all[1].said.pop();
  assert.match(next, /^admits the next in (30|29|28|27) min$/);
  assert.deepEqual(all, [
    { name: 'account', marks: [], rule: '300/s', left: '1 of 1', said: ['Leaky bucket, the whole queue', 'admits the next now'] },
    { name: 'tenant', marks: ['Limiting now'], rule: '2/h', left: '0 of 1', said: ['Token bucket, tenant acme'] },
    { name: 'daily', marks: [], rule: '10000/day', left: '9,999 of 10,000', said: ['Sliding window log, tenant acme', 'admits the next now'] },
    { name: 'in-flight', marks: [], rule: '10 at a time', left: '10 of 10', said: ['Concurrency, tenant acme', 'admits the next now'] },
    { name: 'in-flight-jobs', marks: [], rule: '8 at a time', left: '8 of 8', said: ['Concurrency, tenant acme, for jobs alone', 'admits the next now'] },
  ]);
  // The next slots: their times, and the places of their marks on the line.
  const slots = titled(page, /^Next slots/);
  assert.match(await text(slots.getByRole('heading')), /^Next slots 20 within 10 h$/);
  const marks = await slots.locator('.slots li').evaluateAll((all) => all.map((li) => [li.title, parseFloat(getComputedStyle(li).getPropertyValue('--at'))]));
  const ofDay = (clock) => clock.split(':').reduce((sum, part) => 60 * sum + Number(part), 0) * 1000;
  for (let i = 1; i < marks.length; i++) {
    const apart = (ofDay(marks[i][0]) - ofDay(marks[i - 1][0]) + 24 * 60 * minute) % (24 * 60 * minute);
    assert.ok(Math.abs(apart - 30 * minute) < 10, `slot ${i} comes ${apart} ms after the one before`);
    assert.ok(Math.abs(marks[i][1] - marks[i - 1][1] - 0.05) < 0.005, `mark ${i} is at ${marks[i][1]}, the one before at ${marks[i - 1][1]}`);
  }
  assert.equal(marks.at(-1)[1], 1);
  // The call that was made, and the waiting jobs.
  const outcomes = await texts(page.getByRole('table', { name: 'Recent outcomes' }).locator('tbody td[data-label="Outcome"]'));
  assert.deepEqual(outcomes, ['done']);
  const jobs = page.getByRole('table', { name: 'Jobs, waiting' }).locator('tbody tr');
  assert.equal(await jobs.count(), 15);
  assert.deepEqual(await texts(jobs.first().locator('td[data-label="Priority"], td[data-label="Attempt"]')), ['normal', '1']);
});

scenario('a tenant held back by its provider, with an overridden limit', async (page) => {
  await at.visit(page, at.tenant(queue, 'hooli'));
  assert.match(await sentence(page), new RegExp(`^hooli’s webhook is held back until \\d\\d:\\d\\d: ${receiver} answered 429: "Too Many Requests"; 1 waiting, done at about \\d\\d:\\d\\d$`));
  assert.deepEqual(await texts(card(page, 'Summary').locator('.actions .badge')), ['Override']);
  const [, changed] = await series(page);
  assert.equal(changed.left, '80 of 80');
  assert.match(changed.said.at(-1), /^instead of 20\/s, by anna, until \d\d:\d\d: launch day Clear…$/);
  const outcomes = await texts(page.getByRole('table', { name: 'Recent outcomes' }).locator('tbody td[data-label="Outcome"]'));
  assert.deepEqual(outcomes, [`throttled ${receiver} answered 429: "Too Many Requests"`]);
});

scenario('providers', async (page) => {
  await at.visit(page, at.providers());
  const answers = titled(page, queue).filter({ has: page.locator('.also') });
  await answers.getByText('Calls so far: 1 accepted, 1 failed permanently, 2 failed temporarily, 1 rate-limited (429).', { exact: true }).waitFor();
  assert.deepEqual(await texts(answers.locator('header .badge')), ['2 pauses']);
  const of = (tenant, answer) => new RegExp(`^Held endpoint ${receiver} of ${tenant}, until \\d\\d:\\d\\d: ${receiver} answered ${answer}$`);
  const notices = await texts(answers.locator('.notice'));
  assert.equal(notices.length, 2);
  assert.match(notices[0], of('hooli', '429: "Too Many Requests"'));
  assert.match(notices[1], of('initech', '503: "Service Unavailable"'));
  await titled(page, 'ai').getByText('Calls so far: 1 accepted.', { exact: true }).waitFor();

  // Workers report these with their heartbeats.
  const webhook = card(page, 'Provider of webhook'), ai = card(page, 'Provider of ai');
  await webhook.getByText('Opened 1 time after failed calls', { exact: true }).waitFor();
  await webhook.getByText('None reported.', { exact: true }).waitFor();
  await ai.getByText('Never opened', { exact: true }).waitFor();
  await ai.locator('.quota').nth(3).waitFor();
  // What the provider said is beside what the limits assume that count the same.
  const beside = async (quota) => ({
    of: await text(quota.locator('h4')),
    said: (await texts(quota.locator('dl > div').filter({ hasText: 'The provider said' }).locator('dd'))).map((said) => said.replace(/said (now|[\d.]+ (s|min) ago)$/, 'said then')),
    assumed: await texts(quota.locator('dl > div').filter({ hasText: 'Headgate assumes' }).locator('dd')),
  });
  assert.deepEqual(await Promise.all((await ai.locator('.quota').all()).map(beside)), [
    { of: 'Audio', said: ['7 remaining said then'], assumed: ['No limit counts this.'] },
    { of: 'Images', said: ['limit 5,000 said then'], assumed: ['9,000/9,000 9,000/day, images, does not follow the provider: not adaptive'] },
    { of: 'Requests', said: ['42/60 60/day, full again in 7 h, said then'], assumed: ['42/50 60/day, requests, lowered from 120/day'] },
    { of: 'Tokens', said: ['1,234/90,000 said then'], assumed: ['No limit counts this.'] },
  ]);
  assert.deepEqual(await ai.getByRole('meter').evaluateAll((all) => all.map((meter) => meter.ariaValueText)), ['9,000 of 9,000', '42 of 60', '42 of 50', '1,234 of 90,000']);
});

scenario('why the limit of a tenant is lowered', async (page) => {
  const why = async () => (await series(page)).find(({ name }) => name === 'requests').said.find((said) => said.startsWith('Lowered'));
  await at.visit(page, at.tenant('ai', 'acme'));
  await page.locator('.series > li').first().waitFor();
  assert.equal(await why(), 'Lowered to 50 % because the provider said that it admits less');
  await page.route('**/tenants/acme', async (route) => {
    const response = await route.fetch(), tenant = await response.json();
    for (const limit of tenant.limits) if (limit.lowered_by) Object.assign(limit, { lowered_by: 'refusals', adapted: 1022 / 1024 });
    await route.fulfill({ response, json: tenant });
  });
  await page.getByText('because the provider refused calls (429)').waitFor();
  assert.equal(await why(), 'Lowered to > 99 % because the provider refused calls (429)');
});

scenario('limits', async (page) => {
  await at.visit(page, at.limits(queue));
  const rows = async (name) => Promise.all((await page.getByRole('table', { name }).locator('tbody tr').all()).map((row) => texts(row.locator('td[data-label]'))));
  assert.deepEqual(await rows('Limits of the queue'), [
    ['account', 'queue, shared', 'leaky bucket', '300/s'],
    ['tenant', 'tenant', 'token bucket', '20/s, burst 40'],
    ['daily', 'tenant', 'sliding window log', '10000/day'],
    ['in-flight', 'tenant', 'concurrency', '10 at once'],
    ['in-flight-jobs', 'tenant for jobs alone', 'concurrency', '8 at once'],
  ]);
  assert.deepEqual(await texts(page.locator('.facts > div')), ['Most jobs of a tenant 100,000']);
  const [changed, ...more] = await rows('Overrides');
  assert.deepEqual(more, []);
  assert.match(changed.splice(5, 1)[0], /^\d\d:\d\d$/); // until
  assert.deepEqual(changed, ['hooli', 'tenant', '20/s, burst 40', '20/s, burst 80', '20/s, burst 80', 'anna launch day']);
  const changes = page.locator('.changes > li');
  assert.equal(await changes.count(), 2);
  assert.match(await text(changes.nth(0).locator('p')), /^anna changed “?tenant”? of hooli until \d\d:\d\d: launch day$/);
  assert.deepEqual(await texts(changes.nth(0).locator('.differences li')), ['tenant: 20/s, burst 40 → 20/s, burst 80']);
  assert.match(await text(changes.nth(1).locator('p')), /^worker on \S+, process \d+ published limits: limits file \S+\/limits\.yaml$/);
  assert.deepEqual(await texts(changes.nth(1).locator('.differences li')), [
    'account: leaky_bucket 300/s', 'acme: tenant: 2/h, burst 1', 'acme: weight: 3', 'daily: sliding_window_log 10000/day, per tenant',
    'in-flight: concurrency 10 at once, per tenant', 'in-flight-jobs: concurrency 8 at once, per tenant, for jobs', 'kinds: webhook', 'max_backlog: 100000', 'tenant: token_bucket 20/s, burst 40, per tenant',
  ]);
});

scenario('what changed, in all queues', async (page) => {
  await at.visit(page, at.activity());
  const changes = await texts(page.locator('.changes > li p'));
  assert.match(changes[0], /^webhook: anna changed “?tenant”? of hooli until \d\d:\d\d: launch day$/);
  assert.deepEqual(changes.slice(1).map((text) => text.replace(/ on .*/, '')).sort(), ['ai: worker', 'webhook: worker']);
});

scenario('the numbers of a payload', async (page) => {
  await at.visit(page, at.job(queue, given.job));
  assert.equal(await page.getByRole('group', { name: 'Payload' }).textContent(), `{
  "body": {
    "cents": 1.10,
    "id": 9007199254740993,
    "lines": [
      {
        "sku": -1e400
      },
      true
    ],
    "none": [],
    "text": "{\\"n\\":[1,2]}, \\\\"
  },
  "url": "http://${receiver}/orders"
}`);
});

scenario('every action of the audit', async (page) => {
  const entries = [
    [{ action: 'pause', tenant: 'acme' }, 'webhook: ann paused acme: x'],
    [{ action: 'resume' }, 'webhook: ann resumed all of the queue: x'],
    [{ action: 'override', tenant: 'acme', limit: 'tenant' }, 'webhook: ann changed tenant of acme: x'],
    [{ action: 'clear', tenant: 'acme', limit: 'tenant' }, 'webhook: ann cleared the override of tenant of acme: x'],
    [{ action: 'publish' }, 'webhook: ann published limits: x'],
    [{ action: 'cancel', count: 3, tenant: 'acme', state: 'waiting' }, 'webhook: ann cancelled 3 waiting jobs of acme: x'],
    [{ action: 'run', count: 1 }, 'webhook: ann ran 1 job: x'],
    [{ action: 'retry', count: 2, kind: 'webhook' }, 'webhook: ann retried 2 jobs of kind webhook: x'],
    [{ action: 'delete', id: 'j1', count: 1 }, 'webhook: ann deleted job j1: x'],
    [{ action: 'wake', count: 2, tenant: 'acme' }, 'webhook: ann let 2 jobs of acme try again now: x'],
    [{ action: 'enable', tenant: 'acme', endpoint: 'a.example:443', id: 'e1' }, 'webhook: ann enabled endpoint a.example:443 of acme: x'],
    [{ action: 'periodic add', tenant: 'acme', kind: 'webhook', id: 'nightly' }, 'webhook: ann set periodic job nightly of acme of kind webhook: x'],
    [{ action: 'periodic remove', tenant: 'acme', id: 'nightly' }, 'webhook: ann removed periodic job nightly of acme: x'],
    [{ action: 'periodic pause', tenant: 'acme', id: 'nightly' }, 'webhook: ann paused periodic job nightly of acme: x'],
    [{ action: 'periodic resume', tenant: 'acme', id: 'nightly' }, 'webhook: ann resumed periodic job nightly of acme: x'],
    [{ action: 'unregister', queue: undefined, before: { queue: 'old' } }, 'ann unregistered queue old: x'],
    [{ action: 'keys', queue: undefined, after: { shop: 'read' } }, 'ann created 1 API key: x'],
    [{ action: 'keys', queue: undefined, before: { shop: 'read', ops: 'admin' } }, 'ann revoked 2 API keys: x'],
    [{ action: 'keys', queue: undefined, before: { shop: 'read' }, after: { shop: 'admin' } }, 'ann changed 1 API key: x'],
    [{ action: 'refused' }, 'webhook: ann was refused: x'],
    [{ action: 'refused', queue: undefined, actor: 'nobody' }, 'A caller without a valid key was refused: x'],
    [{ action: 'refused', queue: undefined, actor: 'nobody', count: 40 }, '40 further requests were refused'],
    [{ action: 'of a later version' }, 'webhook: ann: of a later version: x'],
  ].map(([entry, said]) => [{ at: new Date().toISOString(), actor: 'ann', queue, reason: 'x', count: 0, ...entry }, said]);
  await page.route('**/api/v1/audit?*', (route) => route.fulfill({ json: { entries: entries.map(([entry]) => entry), away: ['far', ''] } }));
  await at.visit(page, at.activity());
  const changes = page.locator('.changes > li');
  await changes.nth(entries.length - 1).waitFor();
  await page.getByText('Without those of far, the keys, whose Redis does not answer.').waitFor();
  assert.deepEqual((await texts(changes.locator('p'))).map((said) => said.replace(/[“”"]/g, '')), entries.map(([, said]) => said));
  assert.equal(await changes.filter({ hasText: 'unregistered' }).locator('.differences').count(), 0);
});

scenario('before its history has come, a page claims nothing', async (page) => {
  // A canvas has no text to read: what is written on it is kept.
  await page.addInitScript(() => {
    window.written = [];
    const write = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, ...where) {
      window.written.push(text);
      return write.call(this, text, ...where);
    };
  });
  await page.route('**/history', () => {}); // never answered
  const summaries = (of) => of.getByRole('img').evaluateAll((all) => all.map((chart) => chart.ariaLabel));
  // The seconds that the stream brings are not the minute either.
  const second = () => page.evaluate(() => new Promise((done) => {
    const stream = new EventSource('api/v1/events');
    stream.addEventListener('history', () => { stream.close(); done(); });
  }));
  const began = Date.now();
  await at.visit(page, at.queuePage(queue));
  await second();
  const { 'Out': out, 'Rate-limited (429)': rejected } = await stats(card(page, queue));
  assert.match(out, /^– sent in the last minute/);
  assert.equal(rejected, '– in the last minute');
  const unknown = 'Nothing is known of the last ten minutes yet.';
  assert.deepEqual(await summaries(card(page, queue)), [unknown]);
  await page.waitForFunction(() => window.written.some((text) => text.includes(':')));
  const axis = new Set((await page.evaluate(() => window.written)).filter((text) => text.includes(':')));
  const shown = new Set();
  for (let then = began - 10 * minute; then < Date.now() + minute; then += minute) shown.add(new Date(then).toISOString().slice(11, 16));
  assert.deepEqual([...axis].filter((label) => !shown.has(label)), [], 'the axis has other times than the last ten minutes');

  await at.visit(page, at.providers());
  await second();
  const answers = card(page, queue);
  const nothing = '– in the last minute';
  assert.deepEqual(await stats(answers), { 'Accepted': nothing, 'Rate-limited (429)': nothing, 'Failed': nothing });
  assert.deepEqual(await summaries(answers), [unknown, unknown]);
});
