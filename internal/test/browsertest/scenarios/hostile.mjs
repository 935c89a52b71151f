// Names and payloads that try to be more than text.
import assert from 'node:assert/strict';
import { ask, given, scenario } from '../lib/scenario.mjs';
import { accessible, fits } from '../lib/rules.mjs';
import * as at from '../lib/page.mjs';

const { queue } = given;
// Elements that the page itself never has.
const injected = 'main :is(script, img, iframe, object, embed, style, link), [onerror], [onload], [onclick]';

for (const width of [1280, 375]) {
  scenario(`names in the list, ${width} px`, { width }, async (page) => {
    await at.visit(page, at.tenants(queue));
    for (const { name } of given.hostile) {
      const link = page.getByRole('link').filter({ has: page.locator('bdi') }).and(page.locator('td a'));
      const texts = await link.allTextContents();
      assert.ok(texts.includes(name), `${JSON.stringify(name)} is not among ${JSON.stringify(texts)}`);
    }
    assert.equal(await page.locator(injected).count(), 0);
    await fits(page);
    await accessible(page);
  });
}

given.hostile.forEach(({ name, job }, i) => {
  scenario(`a tenant and a job: ${i}`, { width: i % 2 ? 375 : 1280 }, async (page) => {
    await at.visit(page, at.tenants(queue));
    await page.locator('td a').nth((await page.locator('td a').allTextContents()).indexOf(name)).click();
    await page.waitForFunction((name) => document.querySelector('h1')?.textContent === name, name);
    await at.settled(page);
    assert.equal(await page.locator(injected).count(), 0);
    await fits(page, 'its page');
    // The name has its own text direction and does not change that of the text around it.
    const turned = await page.evaluate((name) => {
      const walk = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT), bad = [];
      while (walk.nextNode()) {
        const { nodeValue, parentElement } = walk.currentNode;
        if (nodeValue.includes(name) && !parentElement.closest('bdi') && !parentElement.closest('option, select')) bad.push(parentElement.outerHTML.slice(0, 200));
      }
      return bad;
    }, name);
    assert.deepEqual(turned, [], 'the name is not isolated from the text of the page');

    await at.visit(page, at.job(queue, job));
    const payload = await page.getByRole('group', { name: 'Payload' }).textContent();
    assert.deepEqual(JSON.parse(payload).body, { html: name, password: '[redacted]' });
    assert.equal(await page.locator(injected).count(), 0);
    await fits(page, 'its job');
  });
});

for (const width of [1280, 375]) {
  scenario(`faults of scripts, ${width} px`, { width }, async (page) => {
    await at.visit(page, at.queuePage(queue));
    for (const { name } of given.hostile) {
      await ask('fault', name);
      const fault = page.locator('.notice.bad').filter({ hasText: '1 fault' });
      await fault.locator('bdi').filter({ hasText: `is ${name}` }).waitFor();
      assert.deepEqual(await fault.locator('bdi').allTextContents(), [`lane ${name}`, `a field is ${name}`]);
      assert.equal(await page.locator(injected).count(), 0);
      await fits(page);
    }
    await accessible(page);
    await ask('fault', '');
    await page.locator('.notice.bad').waitFor({ state: 'detached' });
  });
}

scenario('a payload of 1 MB', async (page) => {
  await at.visit(page, at.job(queue, given.large));
  await page.getByText('Truncated for display').waitFor();
  await page.getByText(/^(1,0\d\d(\.\d)? KiB|1 MiB)$/).waitFor();
  const payload = await page.getByRole('group', { name: 'Payload' }).textContent();
  assert.match(payload, /<b>1 MB<\/b>/);
  assert.ok(payload.length <= 70_000, `${payload.length} characters are shown`);
  assert.equal(await page.locator('pre b').count(), 0);
  await fits(page);
});

scenario('a name that a URL cannot contain', async (page) => {
  await at.visit(page, `queues/${queue}/tenants/%2e%2e`);
  await page.getByRole('heading', { name: 'Name not supported' }).waitFor();
});
