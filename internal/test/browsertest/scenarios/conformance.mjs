// Whether calls kept to the limits of a queue.
import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { given, scenario } from '../lib/scenario.mjs';
import { accessible, fits } from '../lib/rules.mjs';
import * as at from '../lib/page.mjs';

const { queue } = given;
const text = async (locator) => (await locator.innerText()).replace(/\s+/g, ' ').trim();
const rows = async (page, name) => Promise.all((await page.getByRole('table', { name }).locator('tbody tr').all()).map(async (row) => Promise.all((await row.locator('td[data-label]').all()).map(text))));

scenario('kept and exceeded', async (page) => {
  await at.visit(page, at.limits(queue));
  await page.getByRole('link', { name: 'Whether calls kept to them' }).click();
  await page.getByRole('heading', { name: 'Conformance', level: 1 }).waitFor();
  await page.getByRole('table', { name: 'Limits, with the hours in which they were used' }).waitFor();
  assert.deepEqual(await rows(page, 'Limits, with the hours in which they were used'), [
    ['tenant in 60 min', 'oscorp', '', '4 of 1', 'Exceeded'], ['tenant in 60 min', 'acme', '', '3 of 5', 'Kept'],
  ]);
  const strips = page.getByRole('img', { name: /hours? with calls/ });
  assert.match(await strips.nth(0).getAttribute('aria-label'), /^[12] hours? with calls, [12] above the limit$/);
  assert.match(await strips.nth(1).getAttribute('aria-label'), /^1 hour with calls, none above the limit$/);
  const [when, ...why] = (await rows(page, 'Windows in which a limit was exceeded'))[0];
  assert.match(when, /^\d\d:\d\d(:\d\d)?$/);
  assert.deepEqual(why.slice(0, 3), ['tenant', 'oscorp', '4 of 1']);
  assert.match(why[3], /^anna ran jobs at once at \d\d:\d\d(:\d\d)?\. invoices first$/);
  await accessible(page, 'conformance');
  await fits(page, 'conformance');
});

/** The lines of the file that the page saves. */
async function saved(page) {
  const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Save as CSV' }).click()]);
  assert.equal(download.suggestedFilename(), `${queue}-conformance.csv`);
  const folder = await mkdtemp(join(tmpdir(), 'headgate-'));
  await download.saveAs(join(folder, 'file.csv'));
  const file = await readFile(join(folder, 'file.csv'), 'utf8');
  await rm(folder, { recursive: true });
  return file.split('\r\n');
}

scenario('one tenant, and the file', async (page) => {
  await at.visit(page, `queues/${queue}/conformance?tenant=acme&hours=720`);
  await page.getByRole('table', { name: 'Limits, with the hours in which they were used' }).waitFor();
  assert.equal((await rows(page, 'Limits, with the hours in which they were used')).length, 1);
  assert.equal(await page.getByLabel('Time').inputValue(), '720');
  const [head, line, ...more] = await saved(page);
  assert.equal(head, '"limit","of","window_seconds","hour","most","allowed","exceeded_at","exceeded_took","exceeded_allowed","causes"');
  assert.match(line, /^"tenant","acme","3599.995","\d{4}-\d\d-\d\dT\d\d:00:00.000Z","3","5","","","",""$/);
  assert.deepEqual(more, []);
  await at.visit(page, `queues/${queue}/conformance?tenant=oscorp`);
  await page.getByRole('table', { name: 'Windows in which a limit was exceeded' }).waitFor();
  assert.match((await saved(page)).at(-1), /"4","1","anna ran jobs at once at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d.*Z \(invoices first\)"$/);
  await at.visit(page, `queues/${queue}/conformance?tenant=nobody`);
  await page.getByRole('heading', { name: 'No calls in this time' }).waitFor();
});
