// Helpers for scenarios: the addresses of the page, and its dialogs.
import assert from 'node:assert/strict';
import { base } from './scenario.mjs';

const escaped = (...names) => names.map(encodeURIComponent).join('/');
export const now = () => '';
export const queuePage = (queue) => `queues/${escaped(queue)}`;
export const tenants = (queue) => `queues/${escaped(queue)}/tenants`;
export const tenant = (queue, name) => `queues/${escaped(queue)}/tenants/${escaped(name)}`;
export const job = (queue, id) => `queues/${escaped(queue)}/jobs/${escaped(id)}`;
export const failures = (queue) => `queues/${escaped(queue)}/failures`;
export const limits = (queue) => `queues/${escaped(queue)}/limits`;
export const workers = () => 'workers';
export const providers = () => 'providers';
export const activity = () => 'activity';
export const lab = () => 'lab';

// visit goes to an address of the page, and waits until it has loaded.
export async function visit(page, to = '') {
  const from = page.url(), at = `${base}/#/${to}`;
  if (from === at) await page.reload({ waitUntil: 'commit' });
  else if (!from.startsWith(base)) await page.goto(at, { waitUntil: 'commit' });
  else {
    await page.evaluate((at) => new Promise((done) => {
      addEventListener('hashchange', () => requestAnimationFrame(() => done()), { once: true });
      location.href = at;
    }), at);
  }
  await settled(page);
}

// settled waits until the page is live and nothing is loading.
export async function settled(page) {
  await live(page);
  await page.locator('.skeleton').first().waitFor({ state: 'detached' });
  await page.locator('[aria-busy="true"]').first().waitFor({ state: 'detached' });
}

export const live = (page) => page.locator('header .badge', { hasText: /^Live$/ }).waitFor();

// confirm fills in the open dialog and submits it, and waits until it closes.
export async function confirm(page, verb, { reason = 'a test', typed, before } = {}) {
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('heading').waitFor();
  if (before) await before(dialog);
  const button = dialog.getByRole('button', { name: verb });
  assert.equal(await button.isDisabled(), true, 'a change without a reason can be made');
  await dialog.getByLabel('Reason').fill(reason);
  if (typed) await dialog.getByLabel(/^Type /).fill(typed);
  await button.click();
  await dialog.waitFor({ state: 'hidden' });
}

// said waits for a message about what was done.
export const said = (page, text) => page.locator('.toasts p', { hasText: text }).first().waitFor();
