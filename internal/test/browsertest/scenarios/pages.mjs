// Every page, in light and dark, wide and narrow.
import assert from 'node:assert/strict';
import { scenario, given } from '../lib/scenario.mjs';
import { accessible, colours, fits } from '../lib/rules.mjs';
import * as at from '../lib/page.mjs';

const { queue, tenant, jobs } = given;
const pages = {
  'now': [at.now(), 'Now'],
  'a queue': [at.queuePage(queue), queue],
  'tenants': [at.tenants(queue), 'Tenants'],
  'a tenant': [at.tenant(queue, tenant), tenant],
  'workers': [at.workers(), 'Workers'],
  'providers': [at.providers(), 'Providers'],
  'failures': [at.failures(queue), 'Failures'],
  'limits': [at.limits(queue), 'Limits'],
  'activity': [at.activity(), 'Activity'],
  'lab': [at.lab(), 'Lab'],
  'no such page': ['nowhere', 'Not found'],
};
const ofJobs = (states) => Object.fromEntries(states.map((state) => [`a job: ${state}`, [at.job(queue, jobs[state]), `Job ${jobs[state]}`]]));

// In dark, axe checks only colours: everything else is the same as in light. The states of a job
// are checked in one combination only.
const looks = [
  ['light', 1280, undefined, { ...pages, ...ofJobs(Object.keys(jobs)) }],
  ['light', 375, undefined, { ...pages, ...ofJobs(['waiting', 'archived']) }],
  ['dark', 1280, colours, { ...pages, ...ofJobs(['waiting', 'archived']) }],
];
for (const [theme, width, rules, shown] of looks) {
  scenario(`${theme}, ${width} px`, { theme, width }, async (page) => {
    for (const [name, [path, title]] of Object.entries(shown)) {
      await at.visit(page, path);
      assert.equal(await page.getByRole('heading', { level: 1 }).textContent(), title, name);
      if (title.length < 20) assert.ok(await page.locator('h1 .name').evaluate((e) => e.scrollWidth <= e.clientWidth), `the heading is cut off: ${name}`);
      assert.equal(await page.locator('.state.bad').count(), name === 'no such page' ? 1 : 0, `${name} shows an error`);
      await fits(page, name);
      await accessible(page, name, rules);
    }
  });
}

scenario('the theme is remembered', async (page) => {
  await at.visit(page);
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await background();
  await page.getByRole('button', { name: /^Colours: system/ }).click();
  assert.equal(await background(), light);
  await page.getByRole('button', { name: /^Colours: light/ }).click();
  const dark = await background();
  assert.notEqual(dark, light);
  await at.visit(page);
  assert.equal(await background(), dark);
});
