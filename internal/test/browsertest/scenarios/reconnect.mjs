// The server and Redis go away and come back, without a reload of the page.
import assert from 'node:assert/strict';
import { ask, base, given, scenario } from '../lib/scenario.mjs';
import { accessible } from '../lib/rules.mjs';
import * as at from '../lib/page.mjs';

const allow = [/net::ERR_/, /status of 5\d\d/, /ERR_INCOMPLETE_CHUNKED_ENCODING/];
const banner = (page, text) => page.locator('.banner', { hasText: text });

scenario('the worker is killed and comes back', { allow }, async (page) => {
  await at.visit(page, at.tenants(given.queue));
  const known = page.getByRole('link', { name: given.tenant, exact: true });
  await known.waitFor();
  await ask('kill the worker');
  await banner(page, 'The server does not answer.').waitFor();
  assert.ok(await known.isVisible(), 'the data shown is gone');
  await accessible(page, 'without a worker');
  await ask('start the worker');
  await banner(page, 'The server does not answer.').waitFor({ state: 'detached' });
  await at.live(page);
  await ask('enqueue', { tenant: 'newcomer' });
  await page.getByRole('link', { name: 'newcomer', exact: true }).waitFor();
});

// A worker that hangs closes no connection: the page sees only that no messages arrive.
scenario('the worker hangs and continues', { allow }, async (page) => {
  await at.visit(page, at.tenants(given.queue));
  await page.evaluate(() => new MutationObserver(() => {
    window.said ??= document.querySelector('.banner b')?.textContent;
  }).observe(document.body, { childList: true, subtree: true }));
  await ask('freeze the worker');
  try {
    await page.locator('.banner').waitFor();
    assert.equal(await page.evaluate(() => window.said), 'The server does not answer.');
  } finally {
    await ask('thaw the worker');
  }
  await page.locator('.banner').waitFor({ state: 'detached' });
});

scenario('Redis hangs and continues', { allow }, async (page) => {
  await at.visit(page, at.tenants(given.queue));
  await page.evaluate(() => new MutationObserver(() => {
    window.said ??= document.querySelector('.banner b')?.textContent;
  }).observe(document.body, { childList: true, subtree: true }));
  await ask('pause Redis');
  try {
    await page.locator('.banner').waitFor();
    assert.equal(await page.evaluate(() => window.said), 'Redis does not answer.');
  } finally {
    await ask('resume Redis');
  }
  await page.locator('.banner').waitFor({ state: 'detached' });
});

scenario('Redis is killed and comes back', { allow }, async (page, tab) => {
  await at.visit(page, at.tenants(given.queue));
  await ask('kill Redis');
  await banner(page, 'Redis does not answer.').waitFor();
  await accessible(page, 'without Redis');
  // A page opened in the meantime shows the same.
  const late = await tab.context.newPage();
  await late.goto(`${base}/#/${at.tenants(given.queue)}`);
  await banner(late, 'Redis does not answer.').waitFor();
  await ask('start Redis');
  for (const one of [page, late]) {
    await banner(one, 'Redis does not answer.').waitFor({ state: 'detached' });
    await one.getByRole('link', { name: given.tenant, exact: true }).waitFor();
  }
});

// Pages that are opened meanwhile know nothing, and must not say that there is nothing.
for (const [gone, back, text] of [['kill Redis', 'start Redis', 'Redis does not answer.'], ['kill the worker', 'start the worker', 'The server does not answer.']]) {
  scenario(`pages opened after "${gone}" claim nothing, and fill when it is back`, { allow }, async (page) => {
    const pages = [at.now(), at.queuePage(given.queue), at.tenant(given.queue, given.tenant), at.failures(given.queue), at.limits(given.queue), at.workers(), at.providers(), at.activity()];
    const open = async (to) => {
      await page.evaluate((to) => { location.hash = `#/${to}`; }, to);
      await page.getByRole('heading', { level: 1 }).waitFor();
    };
    await at.visit(page, at.tenants(given.queue));
    await ask(gone);
    await banner(page, text).waitFor();
    for (const to of pages) {
      await open(to);
      assert.ok(await banner(page, text).isVisible(), `${to}: the banner`);
      assert.doesNotMatch(await page.locator('main').innerText(), /no worker is running|no failures|no limits|no providers|no matching|no queue yet|jobs failed/i, to);
    }
    await ask(back);
    await banner(page, text).waitFor({ state: 'detached' });
    for (const to of pages) {
      await open(to);
      await page.waitForFunction(() => !document.querySelector('main .skeleton, main .state.bad'));
    }
  });
}

scenario('a hidden tab sends no requests', async (page, tab) => {
  await page.clock.install();
  await at.visit(page, at.tenants(given.queue));
  const stream = tab.requests.findLast((r) => r.url.pathname.endsWith('/events'));
  const ended = page.waitForEvent('requestfailed', (r) => r === stream.request);
  const look = (hidden) => page.evaluate((hidden) => {
    Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });
    document.dispatchEvent(new Event('visibilitychange'));
  }, hidden);
  await look(true);
  await ended; // the stream is closed
  await page.locator('header .badge', { hasText: 'Not live' }).waitFor();
  const before = tab.requests.length;
  await page.clock.runFor(5 * 60_000);
  assert.deepEqual(tab.requests.slice(before).map((r) => r.url.pathname), []);
  await look(false);
  await page.clock.runFor(1000);
  await at.live(page);
  assert.ok(tab.requests.slice(before).some((r) => r.url.pathname.endsWith('/events')));
});
