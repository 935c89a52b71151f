// The times of first paint, first content and first rows, for BenchmarkPage.
import { ask, given, scenario } from '../lib/scenario.mjs';
import * as at from '../lib/page.mjs';

scenario('open page', async (page) => {
  await at.visit(page, at.tenants(given.queue));
  const paints = await page.evaluate(() => Object.fromEntries(performance.getEntriesByType('paint').map((e) => [e.name, e.startTime])));
  const rows = await page.evaluate(() => performance.now());
  await ask('measure', { firstPaint: paints['first-paint'], contentful: paints['first-contentful-paint'], rows });
});
