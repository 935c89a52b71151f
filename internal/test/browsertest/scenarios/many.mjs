// 100,000 tenants on one page.
import assert from 'node:assert/strict';
import { given, scenario } from '../lib/scenario.mjs';
import { accessible, fits } from '../lib/rules.mjs';
import * as at from '../lib/page.mjs';

const { queue, tenants } = given;
const nodes = (page) => page.evaluate(() => document.querySelectorAll('*').length);
const count = new Intl.NumberFormat('en').format(tenants);

scenario('one page of tenants at a time', async (page, tab) => {
  let bytes = 0;
  const counted = new Map(), ended = new Map(); // addresses of requests, and when their answers ended
  const cdp = await tab.context.newCDPSession(page);
  await cdp.send('Network.enable');
  // Bytes on the wire. The stream of events never finishes, so it is not counted, and neither are the
  // refreshes two seconds after an answer, which a slow machine makes before the page is read here.
  cdp.on('Network.requestWillBeSent', (e) => {
    const { url } = e.request;
    if (!(e.timestamp - ended.get(url) > 1.9)) counted.set(e.requestId, url);
  });
  cdp.on('Network.loadingFinished', (e) => {
    if (!counted.has(e.requestId)) return;
    ended.set(counted.get(e.requestId), e.timestamp);
    bytes += e.encodedDataLength;
  });
  await at.visit(page, at.tenants(queue));
  await page.getByText(`${count} tenants`).waitFor();
  assert.equal(await page.locator('.data tbody tr').count(), 50);
  assert.ok(bytes > 50_000 && bytes < 100_000, `${bytes} bytes were sent for the first page, for ${[...counted.values()]}`);
  assert.ok(await nodes(page) < 2500, `${await nodes(page)} nodes`);
  await fits(page);
  await accessible(page);

  await page.getByRole('button', { name: 'Last page' }).click();
  await page.getByText(new RegExp(`–${count} of ${count}`)).waitFor();
  await page.getByRole('button', { name: 'Tenant', exact: false }).first().click();
  await page.locator('.data tbody tr').first().getByText('tenant-000000').waitFor();
  await page.getByPlaceholder('Search tenants').fill('TENANT-054321');
  await page.getByText('1 tenant', { exact: true }).waitFor();
  await page.getByRole('link', { name: 'tenant-054321' }).click();
  await page.getByRole('heading', { level: 1, name: 'tenant-054321' }).waitFor();
  await at.settled(page);

  // Going back restores the search, which is in the address.
  await page.goBack();
  await page.getByRole('link', { name: 'tenant-054321' }).waitFor();
  assert.equal(await page.getByPlaceholder('Search tenants').inputValue(), 'TENANT-054321');
});

scenario('the requests of an open page', async (page, tab) => {
  for (const path of [at.now(), at.tenants(queue), at.tenant(queue, 'tenant-054321')]) {
    await at.visit(page, path);
    const begin = performance.now(), before = tab.requests.length;
    for (let i = 0; i < 3; i++) {
      // Give the page time for one more overview from the stream.
      await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 1000))));
    }
    const asked = tab.requests.slice(before), seconds = (performance.now() - begin) / 1000;
    assert.ok(asked.length / seconds <= 2.5, `${asked.length} requests in ${seconds.toFixed(1)} s at ${path}: ${asked.map((r) => r.url.pathname)}`);
    assert.ok(await nodes(page) < 2500, `${await nodes(page)} nodes at ${path}`);
  }
});
