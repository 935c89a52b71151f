// Without permission to make changes, the page offers none and the API refuses them.
import assert from 'node:assert/strict';
import { ask, base, given, scenario } from '../lib/scenario.mjs';
import * as at from '../lib/page.mjs';

const { queue, jobs, names, key } = given;

scenario('no change is offered', { key }, async (page) => {
  const pages = [at.now(), at.queuePage(queue), at.tenants(queue), at.tenant(queue, names.waiting), at.failures(queue), at.limits(queue), at.providers(), ...Object.values(jobs).map((id) => at.job(queue, id))];
  for (const path of pages) {
    await at.visit(page, path);
    await page.locator('header .badge', { hasText: 'Read only' }).waitFor();
    const offered = (await page.locator('main :is(button, summary)').allTextContents()).filter((text) => /…$/.test(text));
    assert.deepEqual(offered, [], path);
    assert.equal(await page.locator('main .menu').count(), 0, path);
  }
});

scenario('the API refuses what the page does not offer', { key }, async () => {
  const headers = { 'Content-Type': 'application/json', Origin: base, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  const changes = [
    ['POST', `queues/${queue}/pause`, {}], ['POST', `queues/${queue}/resume`, {}],
    ['POST', `queues/${queue}/jobs/${jobs.waiting}/cancel`, {}], ['POST', `queues/${queue}/jobs/${jobs.waiting}/run`, {}],
    ['POST', `queues/${queue}/jobs/${jobs.archived}/retry`, {}], ['DELETE', `queues/${queue}/jobs/${jobs.archived}`, {}],
    ['POST', `queues/${queue}/actions`, { verb: 'cancel', dry_run: false }],
    ['PUT', `queues/${queue}/tenants/${names.waiting}/limits/tenant`, { rate: '99/s', dry_run: false }],
    ['DELETE', `queues/${queue}/tenants/${names.waiting}/limits/tenant`, {}],
  ];
  for (const [method, path, body] of changes) {
    const response = await fetch(`${base}/api/v1/${path}`, { method, headers, body: JSON.stringify({ ...body, reason: 'a test' }) });
    assert.equal(response.status, 403, `${method} ${path}: ${await response.text()}`);
  }
  assert.deepEqual(await ask('changes'), []);
});
