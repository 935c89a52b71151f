// Whether the fleet is alive: the workers page and the badge in the header.
import assert from 'node:assert/strict';
import { ask, given, scenario } from '../lib/scenario.mjs';
import { fits } from '../lib/rules.mjs';
import * as at from '../lib/page.mjs';

const { queue } = given; // its name is as long as can be
const badge = (page) => page.locator('header .fleet .badge');

scenario('a worker, and a queue without one', async (page) => {
  await at.visit(page, at.workers());
  const rows = page.getByRole('table', { name: 'Workers' }).locator('tbody tr');
  await rows.first().waitFor();
  assert.equal(await rows.count(), 1);
  const cells = (await rows.first().locator('th, td').allInnerTexts()).map((text) => text.replace(/\s+/g, ' ').trim());
  assert.match(cells[0], /process \d+$/);
  assert.deepEqual(cells.slice(2, 6), ['webhook', 'webhook', '0 of 1,000', '0']);
  assert.match(cells[6], /^(now|\d+ s ago)$/);
  await badge(page).filter({ hasText: `No worker serves queue ${queue}` }).waitFor();
  assert.ok(await badge(page).evaluate((e) => e.classList.contains('bad')));
  for (const width of [320, 768, 1280]) {
    await page.setViewportSize({ width, height: 900 });
    await fits(page, `the fleet at ${width} px`);
  }
  await page.locator('.notice.bad', { hasText: `No worker serves queue ${queue}. Its jobs wait until such a worker starts.` }).waitFor();

  await at.visit(page, at.queuePage(queue));
  const card = page.getByRole('region', { name: queue, exact: true });
  await card.getByText(`no worker serves queue ${queue}`).first().waitFor();
  assert.doesNotMatch(await card.innerText(), /Clears at\s*\d|done at/i, 'an end is promised');
  await card.getByText('Not served', { exact: true }).waitFor();

  await ask('serve');
  // On a busy machine looks at the workers and at the queues are shared for up to 10 s each.
  await badge(page).filter({ hasText: /^2 workers, (now|\d+ s ago)$/ }).waitFor();
  assert.ok(await badge(page).evaluate((e) => e.classList.contains('good')));

  await at.visit(page, at.workers());
  await page.getByRole('table', { name: 'Workers' }).locator('tbody tr').nth(1).waitFor();
  assert.equal(await page.getByText('Workers are the limit').count(), 0);
  await ask('starve');
  await page.locator('.notice.warn', { hasText: `Workers are the limit for ${queue}: in 93\u00a0% of the last seconds jobs could go and no worker had room for them. Start another worker, or raise HEADGATE_CONCURRENCY.` }).waitFor();
});
