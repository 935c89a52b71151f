// A server that requires a key.
import assert from 'node:assert/strict';
import { ask, given, scenario } from '../lib/scenario.mjs';
import { accessible, fits } from '../lib/rules.mjs';
import * as at from '../lib/page.mjs';
import { base } from '../lib/scenario.mjs';

const allow = [/status of 401/];

const signIn = async (page, key) => {
  const field = page.getByRole('dialog', { name: 'API key required' }).getByLabel('Key');
  await field.fill(key);
  await field.press('Enter');
};

scenario('without a key nothing is shown', { allow }, async (page, tab) => {
  await page.goto(`${base}/#/${at.tenants(given.queue)}`);
  const dialog = page.getByRole('dialog', { name: 'API key required' });
  await dialog.waitFor();
  await accessible(page);
  await fits(page);
  await page.keyboard.press('Escape');
  assert.ok(await dialog.isVisible(), 'the dialog can be dismissed');
  assert.equal(await page.getByText(given.names.waiting).count(), 0);

  await dialog.getByLabel('Key').fill('hg_wrong');
  await dialog.getByRole('button', { name: 'Open' }).click();
  await dialog.getByText('The server does not accept this key.').waitFor();
  await signIn(page, given.key);
  await dialog.waitFor({ state: 'hidden' });
  await page.getByRole('link', { name: given.names.waiting, exact: true }).waitFor();
  await at.live(page);

  // The key is kept in this tab only, is in no address, and ends with the tab.
  assert.ok(!page.url().includes(given.key));
  assert.deepEqual(tab.requests.filter((r) => r.url.href.includes(given.key)), []);
  assert.ok(!JSON.stringify(await page.evaluate(() => ({ ...localStorage }))).includes(given.key));
  await page.reload();
  await at.settled(page);
  const other = await tab.context.newPage();
  await other.goto(base);
  await other.getByRole('dialog', { name: 'API key required' }).waitFor();
  await other.close();

  await page.getByRole('button', { name: /Sign out/ }).click();
  await dialog.waitFor();
  await page.getByText(given.names.waiting).first().waitFor({ state: 'detached' }); // nobody reads it behind the dialog
  assert.equal(await page.evaluate(() => sessionStorage.getItem('headgate-key')), null);
});

scenario('a key that is revoked while the page is open', { allow }, async (page) => {
  await page.goto(`${base}/#/${at.tenants(given.queue)}`);
  await signIn(page, given.key);
  await page.locator('.fleet').waitFor();
  await ask('revoke the key');
  await page.getByRole('dialog', { name: 'API key required' }).waitFor();
  await signIn(page, given.shop);
  await page.getByRole('button', { name: /^shop/ }).waitFor();
  await page.locator('.fleet').waitFor({ state: 'detached' }); // this key may not see the workers
});

// What a key does not allow is refused and recorded, so the page does not ask for it over and over.
scenario('a key of one tenant', { key: given.shop, allow: [/status of 403/] }, async (page, tab) => {
  const refused = [];
  page.on('response', (response) => response.status() === 403 && refused.push(new URL(response.url()).pathname));
  await page.clock.install();
  for (const to of [at.now(), at.queuePage(given.queue), at.tenants(given.queue), at.tenant(given.queue, given.names.waiting), at.limits(given.queue), at.activity()]) {
    await at.visit(page, to);
    await page.clock.runFor(15_000);
    await at.settled(page);
    if (to === at.now()) assert.doesNotMatch(await page.locator('main').innerText(), /steady|grows|shrinks/); // only who sees the whole queue sees its history
  }
  assert.deepEqual(refused, []);
  await at.visit(page, at.workers());
  await page.getByRole('heading', { name: 'Not allowed with this key' }).waitFor();
  await page.clock.runFor(60_000);
  assert.equal(refused.length, 1);
  assert.equal(tab.requests.filter((r) => r.url.pathname === refused[0]).length, 1);
});

scenario('a key that may not read', { allow: [/status of 40[13]/] }, async (page, tab) => {
  await page.clock.install();
  await page.goto(base);
  await signIn(page, given.producer);
  await page.getByRole('alert').filter({ hasText: 'not live with this key' }).filter({ hasText: 'scope read' }).waitFor();
  await page.clock.runFor(60_000);
  await page.evaluate(() => dispatchEvent(new Event('online')));
  const asked = tab.requests.filter((r) => r.url.pathname.endsWith('/events') && r.request.headers().authorization);
  assert.equal(asked.length, 1);
  await page.getByRole('button', { name: /Sign out/ }).click();
  await signIn(page, given.shop);
  await at.live(page);
});

scenario('all streams are taken', { key: given.shop, allow: [/status of 429/] }, async (page) => {
  await page.route('**/api/v1/events', (route) => route.fulfill({
    status: 429, contentType: 'application/problem+json', body: JSON.stringify({ title: 'Too Many Requests', detail: 'Enough pages are open: retry later.' }),
  }));
  await page.goto(base);
  const banner = page.getByRole('alert').filter({ hasText: 'Enough pages are open: retry later.' });
  await banner.waitFor();
  assert.doesNotMatch(await banner.innerText(), /does not answer/);
  await page.unroute('**/api/v1/events');
  await at.live(page);
  await banner.waitFor({ state: 'detached' });
});
