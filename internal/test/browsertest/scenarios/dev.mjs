// `worker dev`: its traffic, its switch, and the pictures in the documentation.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { base, given, scenario } from '../lib/scenario.mjs';
import { picture } from '../lib/picture.mjs';
import { accessible, fits } from '../lib/rules.mjs';
import * as at from '../lib/page.mjs';

const { queue, tenant, job } = given;
const stat = (of, label) => of.locator('.stats > div').filter({ has: of.page().locator('dt', { hasText: new RegExp(`^${label}$`) }) }).locator('dd');

scenario('its traffic is shown', async (page) => {
  await at.visit(page);
  const cards = page.locator('.queue');
  for (const name of ['webhook', 'email', 'ai', 'payment']) {
    const card = cards.filter({ has: page.getByRole('heading', { name, exact: true }) });
    await page.waitForFunction((e) => parseFloat(e.textContent) > 0, await stat(card, 'Out').elementHandle());
    await card.locator('.sentence', { hasText: 'held by' }).waitFor();
  }
});

scenario('its charts show full seconds, as counted by the server', async (page) => {
  await at.visit(page, at.queuePage('email'));
  await page.locator('.stats').getByText(/^sent in the last minute, \d+\u00a0% of the \d+\/s allowed/).waitFor();
  const newest = () => page.evaluate(() => [...document.querySelector('.figures tbody tr').children].map((cell) => cell.textContent));
  await page.locator('.figures summary').click();
  const [first] = await newest();
  await page.waitForFunction((first) => document.querySelector('.figures tbody th').textContent !== first, first); // a point from the stream
  const [time, allowed, sent] = await newest();
  const { from, points } = await page.evaluate(async () => (await fetch('api/v1/queues/email/history')).json());
  const i = points.findIndex((_, i) => new Date(Date.parse(from) + i * 1000).toISOString().slice(11, 19) === time);
  assert.match(from, /\.000Z$/);
  const text = (n) => new Intl.NumberFormat('en', { maximumSignificantDigits: 3 }).format(n) + '/s';
  // The server names no allowed rate for a second in which no job could go, as in a pause of the provider.
  const might = points[i].allowed === undefined ? '–' : text(Math.max(points[i].allowed, points[i].sent));
  assert.deepEqual([sent, allowed], [text(points[i].sent), might]);
});

scenario('its providers', async (page) => {
  await at.visit(page, at.providers());
  for (const name of ['webhook', 'email', 'ai', 'payment']) {
    const card = page.getByRole('region', { name, exact: true });
    await card.getByText(/^Calls so far: [\d,]+ accepted[,.]/).waitFor();
    const rejected = stat(card, 'Rate-limited \\(429\\)');
    await rejected.filter({ hasNotText: '–' }).waitFor(); // its history is loaded
    assert.match(await rejected.textContent(), /^(none|[\d.]+\/(s|min|h))in the last minute$/);
  }
  await page.locator('.quota').first().waitFor();
  for (const text of await page.locator('.quota h4').allTextContents()) assert.match(text, /^(Requests|Tokens)$/); // the account is the worker's own
});

// The pictures should show some traffic, but no calls that a provider refused because this machine
// was busy.
if (given.update) test('a minute of traffic without a refusal', async () => {
  const refused = async (name) => {
    const { points } = await (await fetch(`${base}/api/v1/queues/${name}/history`)).json();
    return points.slice(-60).some(({ answers }) => answers.throttled > 0);
  };
  const queues = ['webhook', 'email', 'ai', 'payment'];
  await sleep(120_000);
  for (const end = Date.now() + 120_000; (await Promise.all(queues.map(refused))).includes(true); await sleep(1000)) {
    assert.ok(Date.now() < end, 'machine too busy for pictures: make images later');
  }
});

const pictures = {
  now: at.now(), tenants: at.tenants(queue), tenant: at.tenant(queue, tenant), job: at.job(queue, job),
  providers: at.providers(), failures: at.failures(queue), limits: at.limits(queue), lab: at.lab(),
};
for (const theme of ['light', 'dark']) {
  scenario(`pictures in ${theme}`, { theme, height: 720 }, async (page) => {
    for (const [name, path] of Object.entries(pictures)) {
      await at.visit(page, path);
      await fits(page, name);
      if (name === 'now') await accessible(page, name);
      // Who made the calls is measured every ten seconds.
      if (name === 'tenants') await page.getByRole('heading', { name: 'Who uses the shared limits' }).waitFor();
      if (name === 'failures') await page.locator('.group', { hasText: 'Unprocessable' }).getByRole('button', { expanded: false }).click();
      if (name === 'lab') {
        for (const card of await page.locator('.algorithm').all()) {
          await card.getByRole('button', { name: 'Reset' }).click(); // used up by the scenario of the other theme
          await card.getByRole('button', { name: 'Burst 10' }).click();
          await card.getByRole('button', { name: 'Burst 10' }).click();
        }
        await page.locator('.algorithm').last().getByText(/places left/).waitFor();
      }
      await at.settled(page);
      // A call that was late by this machine's fault may have been refused, which pauses its queue.
      await page.getByRole('button', { name: 'Resume…' }).first().waitFor({ state: 'detached' });
      await page.evaluate(() => scrollTo(0, 0));
      await picture(page, join(given.images, `${name}-${theme}`), given.update);
    }
  });
}

scenario('sending without shaping', async (page) => {
  await at.visit(page, at.lab());
  const card = page.locator('.unshaped');
  await card.getByText('Shaped', { exact: true }).waitFor();
  await card.getByRole('switch', { name: 'Send unshaped' }).click();
  await card.getByText('Unshaped', { exact: true }).waitFor();
  await page.waitForFunction((e) => parseFloat(e.textContent) > 0, await stat(card, 'Refused by the provider').elementHandle());
  await accessible(page);
  await card.getByRole('switch', { name: 'Shape again' }).click();
  await card.getByText('Shaped', { exact: true }).waitFor();
});
