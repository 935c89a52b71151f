// Finding what matters among hundreds of tenants.
import assert from 'node:assert/strict';
import { ask, base, given, scenario } from '../lib/scenario.mjs';
import { accessible, fits } from '../lib/rules.mjs';
import * as at from '../lib/page.mjs';

const { queue, tenant, paused, overridden, job, key } = given;
const text = async (locator) => (await locator.innerText()).replace(/\s+/g, ' ').trim();
const rows = (page, name = `Tenants of ${queue}`) => page.getByRole('table', { name }).locator('tbody tr');
const cell = (row, label) => row.locator(`td[data-label="${label}"]`);

scenario('long names are cut in the middle', async (page) => {
  await at.visit(page, at.tenants(queue));
  await page.getByText('400 tenants', { exact: true }).or(page.getByText('402 tenants', { exact: true })).waitFor();
  const links = rows(page).locator('td[data-label="Tenant"] a');
  const names = await links.evaluateAll((all) => all.map((a) => {
    const [head, tail] = a.querySelectorAll('span'), box = tail.getBoundingClientRect(), whole = a.getBoundingClientRect();
    return { title: a.title, text: a.innerText, tail: tail.innerText, cut: head.scrollWidth > head.clientWidth, seen: box.width > 0 && box.right <= whole.right + 1 };
  }));
  assert.equal(names.length, 50);
  for (const name of names) {
    assert.ok(name.cut && name.seen && name.text === name.title && name.title.endsWith(name.tail), JSON.stringify(name));
  }
  await fits(page);
  await accessible(page);
});

scenario('filters are in the address', async (page) => {
  await at.visit(page, at.tenants(queue));
  const filter = page.getByRole('combobox', { name: 'Which tenants' });
  await filter.selectOption('Paused');
  await page.getByText('5 tenants', { exact: true }).waitFor();
  assert.match(page.url(), /only=paused/);
  await page.reload();
  await at.settled(page);
  await page.getByText('5 tenants', { exact: true }).waitFor();
  assert.equal(await filter.inputValue(), 'paused');
  const shown = await rows(page).all();
  assert.equal(shown.length, 5);
  for (const row of shown) {
    assert.equal(await text(cell(row, 'Rate')), '0/s');
    assert.match(await text(cell(row, 'Held by')), /^paused by anna until [\d-]+ \d\d:\d\d: their endpoint is being moved$/);
  }
  await filter.selectOption('With an override');
  await page.getByText('1 tenant', { exact: true }).waitFor();
  await page.locator(`a[title="${overridden}"]`).waitFor();
  await filter.selectOption('With waiting jobs');
  await page.getByText('400 tenants', { exact: true }).waitFor();
});

scenario('a paused tenant says so, once', async (page) => {
  await at.visit(page, at.tenant(queue, paused));
  const said = page.locator('.sentence');
  await said.filter({ hasText: 'paused by anna' }).waitFor();
  assert.match(await text(page.locator('.stats')), /RATE 0\/s|Rate 0\/s/);
  assert.equal((await text(page.locator('main'))).split('their endpoint is being moved').length, 2, 'the reason stands more than once');
});

scenario('the first sentence is about what matters most', async (page) => {
  await at.visit(page, at.queuePage(queue));
  assert.match(await text(page.locator('.sentence')), /^406 jobs waiting in webhook; their limits let [\d.]+\/(s|min|h|day) go$/);
  assert.equal(await page.locator('.notice', { hasText: 'their endpoint is being moved' }).count(), 3, 'three of five pauses');
  await page.locator('.legend .mark', { hasText: /paused by anna/ }).first().waitFor();
  await page.locator('.legend .mark', { hasText: /limit changed by ben/ }).waitFor();
});

scenario('search from everywhere', async (page) => {
  await at.visit(page, at.workers());
  const dialog = page.getByRole('dialog'), input = dialog.getByRole('textbox');
  await page.keyboard.press('/');
  await input.fill('PRODUCTION-0123');
  await dialog.getByRole('link').first().waitFor();
  await accessible(page);
  await page.keyboard.press('Enter');
  await page.waitForURL(/tenants\/customer-of-the-northern-sales-region-production-0123$/);
  await dialog.waitFor({ state: 'hidden' });

  for (const wanted of [job, `${tenant}:${key}`]) {
    await page.getByRole('button', { name: 'Search', exact: true }).click();
    await input.fill(wanted);
    await dialog.getByText('Job ').getByRole('link').click();
    await page.waitForURL((url) => decodeURIComponent(url.hash).endsWith(`jobs/${job}`));
  }
  await page.keyboard.press('/');
  await input.fill('no/such');
  await dialog.getByText('No tenant and no job match no/such.').waitFor();
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'hidden' });
  // A slash that is typed into a field is a slash.
  await at.visit(page, at.tenants(queue));
  await page.getByPlaceholder('Search tenants').pressSequentially('a/b');
  assert.equal(await page.getByPlaceholder('Search tenants').inputValue(), 'a/b');
  assert.equal(await dialog.count(), 0);
  await page.waitForURL((url) => url.hash.endsWith(encodeURIComponent('a/b')));
  // And so is a letter that is typed while the page takes over those before it.
  await page.evaluate(() => {
    const replace = history.replaceState;
    history.replaceState = function (...to) {
      history.replaceState = replace;
      replace.apply(history, to);
      const field = document.querySelector('input[type=search]');
      field.value += 'd';
      field.dispatchEvent(new Event('input', { bubbles: true }));
    };
  });
  await page.getByPlaceholder('Search tenants').fill('a/b/c');
  await page.waitForURL((url) => url.hash.endsWith(encodeURIComponent('a/b/cd')));
  assert.equal(await page.getByPlaceholder('Search tenants').inputValue(), 'a/b/cd');
});

scenario('a tenant that nobody knows', async (page) => {
  await at.visit(page, at.tenant(queue, 'amce'));
  await page.locator('.notice', { hasText: 'No job of amce is known in webhook. Check the name' }).waitFor();
});

scenario('what the limits file sets for single tenants', async (page) => {
  await at.visit(page, at.limits(queue));
  const all = rows(page, 'Limits of single tenants');
  assert.deepEqual(await Promise.all((await all.all()).map(async (row) => [await text(cell(row, 'Tenant')), await text(cell(row, 'Differs in'))])),
    [['acme', 'tenant: 48/day, burst 1; weight: 3'], ['globex', 'tenant: 172800/day, burst 1']]);
});

scenario('who uses the shared limits', async (page) => {
  const end = Date.now() + 60_000;
  for (let shares = { tenants: [] }; shares.tenants.length < 6; shares = await (await fetch(`${base}/api/v1/queues/${queue}/shares`)).json()) {
    assert.ok(Date.now() < end, 'no shares within a minute');
    await ask('call');
    await new Promise((done) => setTimeout(done, 1000)); // calls of several seconds
  }
  await at.visit(page, at.tenants(queue));
  const card = page.getByRole('region', { name: 'Who uses the shared limits' });
  await card.locator('.legend li').nth(5).waitFor();
  const legend = await card.locator('.legend li').allInnerTexts();
  const parts = legend.map((line) => Number(/(\d+)\s%$/.exec(line)[1]));
  const sum = parts.reduce((a, b) => a + b, 0);
  assert.ok(sum > 90 && sum < 110, `the shares are ${parts}`);
  await card.locator('summary').click();
  await fits(page);
  await accessible(page);
});

scenario('the header on a phone', { width: 360, height: 740 }, async (page) => {
  await at.visit(page, at.tenants(queue));
  await fits(page);
  const last = page.getByRole('navigation').first().getByRole('link').last();
  await last.scrollIntoViewIfNeeded();
  const box = await last.boundingBox();
  assert.ok(box.x >= 0 && box.x + box.width <= 360, `the last link is at ${box.x}, ${box.width} wide`);
  for (const control of await page.locator('header .corner > *').all()) {
    const box = await control.boundingBox();
    if (box) assert.ok(box.x >= 0 && box.x + box.width <= 361, `${await control.innerText()} is at ${box.x}, ${box.width} wide`);
  }
});
