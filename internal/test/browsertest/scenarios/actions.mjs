// Every change that the page offers, checked against what Go reads from Redis.
import assert from 'node:assert/strict';
import { ask, base, given, scenario } from '../lib/scenario.mjs';
import * as at from '../lib/page.mjs';

const { queue, jobs, names } = given;
const row = (page, name) => page.getByRole('row').filter({ has: page.getByRole('link', { name, exact: true }) });
const menu = async (page, name, item) => {
  await row(page, name).locator('details.menu summary').click();
  await page.getByRole('button', { name: item, exact: true }).click();
};

scenario('pause and resume a tenant', async (page) => {
  await at.visit(page, at.tenants(queue));
  await menu(page, names.waiting, 'Pause…');
  await at.confirm(page, 'Pause', { reason: 'their server is being moved', before: (d) => d.getByLabel('For').selectOption('4 hours') });
  await row(page, names.waiting).getByText('Paused', { exact: true }).waitFor();
  const [pause] = await ask('pauses', { tenant: names.waiting });
  assert.match(pause.Reason, /: their server is being moved$/);
  assert.ok(Math.abs(Date.parse(pause.Until) - Date.now() - 4 * 3600e3) < 60e3, `until ${pause.Until}`);

  await at.visit(page, at.tenant(queue, names.waiting));
  await page.locator('.sentence', { hasText: 'is paused by' }).waitFor();
  await page.getByRole('button', { name: 'Resume…' }).click();
  await at.confirm(page, 'Resume');
  await page.getByRole('button', { name: 'Pause…' }).waitFor();
  assert.deepEqual(await ask('pauses', { tenant: names.waiting }), []);
});

scenario('pause and resume a whole queue', async (page) => {
  await at.visit(page, at.queuePage(queue));
  await page.getByRole('button', { name: 'Pause…' }).click();
  await at.confirm(page, 'Pause', { typed: queue, before: (d) => d.getByLabel('For').selectOption('Until resumed') });
  await page.getByRole('button', { name: 'Resume…' }).click();
  const [pause] = await ask('pauses', {});
  assert.match(pause.Until, /^0001-/);
  await at.confirm(page, 'Resume');
  await page.getByRole('button', { name: 'Pause…' }).waitFor();
  assert.deepEqual(await ask('pauses', {}), []);
});

scenario('preview and change a limit, and clear it', { allow: [/status of 400/] }, async (page) => {
  await at.visit(page, at.tenants(queue));
  await menu(page, names.waiting, 'Change limit…');
  await at.confirm(page, 'Change the limit', {
    reason: 'launch day', before: async (d) => {
      await d.getByLabel('Limit').selectOption('tenant');
      await d.getByLabel('Rate').fill('10/sek');
      await d.getByRole('alert').filter({ hasText: 'rate' }).waitFor(); // the server's own words
      await d.getByLabel('Reason').fill('too early');
      assert.equal(await d.getByRole('button', { name: 'Change the limit' }).isDisabled(), true, 'an impossible rate can be set');
      await d.getByLabel('Reason').fill('');
      await d.getByLabel('Rate').fill('4/hour');
      await d.getByText('After the change').waitFor();
      await d.locator('.preview .sentence').nth(1).filter({ hasText: '4/h' }).waitFor();
      await d.getByText(/^Done .* earlier\.$/).waitFor();
      assert.equal((await ask('limit', { tenant: names.waiting, limit: 'tenant' })).From, 'tenant', 'the preview changed something');
      await d.getByLabel('For').selectOption('1 day');
    },
  });
  await row(page, names.waiting).getByText('Override').waitFor();
  const changed = await ask('limit', { tenant: names.waiting, limit: 'tenant' });
  assert.deepEqual([changed.From, changed.Rate, changed.Reason], ['override', '4/h', 'launch day']);

  await at.visit(page, at.limits(queue));
  const cells = (await row(page, names.waiting).filter({ hasText: 'launch day' }).getByRole('cell').allTextContents()).slice(0, 5);
  assert.deepEqual(cells, [names.waiting, 'tenant', '2/h, burst 1', '4/h, burst 1', '4/h, burst 1']);
  await page.locator('.changes li', { hasText: 'launch day' }).first().waitFor();
  await menu(page, names.waiting, 'Clear…');
  await at.confirm(page, 'Clear the override');
  await row(page, names.waiting).filter({ hasText: 'launch day' }).waitFor({ state: 'detached' });
  assert.equal((await ask('limit', { tenant: names.waiting, limit: 'tenant' })).From, 'tenant');
});

scenario('change a limit of a tenant by its name', { allow: [/status of 400/] }, async (page) => {
  await at.visit(page, at.limits(queue));
  await page.getByLabel('Change a limit of').fill(names.other);
  await page.getByLabel('Change a limit of').press('Enter');
  await at.confirm(page, 'Change the limit', {
    before: async (d) => {
      await d.getByLabel('Limit').selectOption('in-flight');
      await d.getByRole('textbox', { name: 'Max in flight' }).fill('1,000');
      await d.locator('.preview').getByText('concurrency').waitFor();
      assert.ok(await d.getByRole('button', { name: 'Change the limit' }).isDisabled());
      await d.getByRole('textbox', { name: 'Max in flight' }).fill('3');
      await d.getByText('After the change').waitFor();
    },
  });
  await row(page, names.other).filter({ hasText: '3 at once' }).waitFor();
  assert.equal((await ask('limit', { tenant: names.other, limit: 'in-flight' })).Concurrency, 3);
});

scenario('an override that no longer fits its limit', async (page) => {
  const changed = row(page, names.other).filter({ hasText: 'in-flight' });
  const cells = async (problem) => {
    await changed.getByText(problem).waitFor();
    const [file, override, inForce] = (await changed.getByRole('cell').allTextContents()).slice(2, 5);
    assert.match(override, /^override \(concurrency 3, by .*\) is not in force: /);
    return [file, inForce];
  };
  await ask('in-flight is', '{name: in-flight, per: [tenant], algorithm: leaky_bucket, rate: 7/h}');
  await at.visit(page, at.limits(queue));
  assert.deepEqual(await cells('concurrency: this limit has a rate'), ['7/h', '7/h']);
  await at.visit(page, at.tenant(queue, names.other));
  await page.locator('.series li', { hasText: 'in-flight' }).getByText('is not in force: ').waitFor();

  await ask('in-flight is', '');
  await at.visit(page, at.limits(queue));
  assert.deepEqual(await cells('the queue no longer has this limit'), ['none', 'none']);
  await changed.locator('details.menu summary').click();
  await page.getByRole('button', { name: 'Clear…', exact: true }).click();
  await at.confirm(page, 'Clear the override', { before: (d) => d.getByText('It is not in force, so clearing it does not change when calls go.').waitFor() });
  await changed.waitFor({ state: 'detached' });
});

scenario('cancel a job, retry it, run it now', async (page) => {
  await at.visit(page, at.job(queue, jobs.waiting));
  await page.getByRole('button', { name: 'Cancel…' }).click();
  await at.confirm(page, 'Cancel the job', { reason: 'ordered twice' });
  await page.locator('.badge', { hasText: 'Cancelled' }).waitFor();
  assert.equal((await ask('job', { id: jobs.waiting })).Outcome, 'cancelled');
  await page.locator('.timeline', { hasText: 'ordered twice' }).waitFor();

  await page.getByRole('button', { name: 'Retry…' }).click();
  await at.confirm(page, 'Retry the job');
  await page.locator('.badge', { hasText: 'Waiting' }).waitFor();
  assert.equal((await ask('job', { id: jobs.waiting })).State, 'waiting');

  await page.getByRole('button', { name: 'Run now…' }).click();
  await at.confirm(page, 'Run the job');
  await page.locator('.badge', { hasText: 'Done' }).waitFor();
  assert.equal((await ask('job', { id: jobs.waiting })).State, 'completed');
});

scenario('run a scheduled job, delete a failed one', { allow: [/status of 404/] }, async (page) => {
  await at.visit(page, at.job(queue, jobs.scheduled));
  await page.getByRole('button', { name: 'Run now…' }).click();
  await at.confirm(page, 'Run the job');
  await page.locator('.badge', { hasText: 'Done' }).waitFor();
  assert.equal((await ask('job', { id: jobs.scheduled })).State, 'completed');

  await at.visit(page, at.job(queue, jobs.archived));
  await page.getByRole('button', { name: 'Delete…' }).click();
  await at.confirm(page, 'Delete the job');
  await page.getByRole('heading', { name: 'Job not found' }).waitFor();
  assert.equal(await ask('job', { id: jobs.archived }), undefined, 'it is gone');
});

scenario('no action is offered for a job held by a worker', async (page) => {
  await at.visit(page, at.job(queue, jobs.sending));
  await page.getByText('too late to change').waitFor();
  assert.equal(await page.locator('main button').count(), 0);
});

scenario('jobs that cannot all be counted can be changed', { allow: [/status of 503/] }, async (page) => {
  await page.route('**/actions', (route) => route.request().postDataJSON().dry_run ? route.fulfill({
    status: 503, contentType: 'application/problem+json', body: JSON.stringify({ title: 'Service Unavailable', status: 503, detail: 'Redis does not answer.' }),
  }) : route.fulfill({ json: { jobs: 7, by_state: {}, too_late: 0, paused: 0, dry_run: false } }));
  await at.visit(page, at.tenants(queue));
  await menu(page, names.many, 'Cancel jobs…');
  await at.confirm(page, /^Cancel$/, { typed: 'cancel', before: (d) => d.getByText('could not all be counted').waitFor() });
  await at.said(page, 'Cancelled 7 jobs');
});

scenario('cancel all waiting jobs of a tenant, after counting them', async (page) => {
  await at.visit(page, at.tenants(queue));
  await menu(page, names.many, 'Cancel jobs…');
  await at.confirm(page, /^Cancel 120 jobs$/, { typed: 'cancel', before: (d) => d.getByText('120 jobs').first().waitFor() });
  await at.said(page, 'Cancelled 120 jobs');
  assert.equal(await ask('waiting', { tenant: names.many }), 0);
});

scenario('failures: titles, cancelled jobs, tenants, hours and all queues', async (page) => {
  await at.visit(page, at.failures(queue));
  const group = (text) => page.locator('.group', { hasText: text });
  const bad = group('Bad Gateway'), text = async (of) => (await of.innerText()).replace(/\s+/g, ' ').trim();
  await bad.waitFor();
  assert.match(await text(bad.locator('.reason')), /^\S+ answered 502: "Bad Gateway"/, 'the title has the attempt');
  assert.match(await text(bad.locator('.about')), /^Failed webhook 1 tenant newest .+ for example \S+$/);
  const jobs = await bad.locator('.count b').innerText();
  await bad.getByRole('img', { name: `Last 24 hours: ${jobs} jobs, ${jobs} in the last hour`, exact: true }).waitFor();
  // The list after the heading has the cancelled jobs, and only these.
  const cancelled = page.getByRole('heading', { name: 'Cancelled', exact: true }).locator('xpath=following-sibling::ul').locator('.group .badge');
  const marks = await page.locator('.group .badge').allInnerTexts(), apart = await cancelled.allInnerTexts();
  assert.ok(apart.length > 0 && apart.every((mark) => mark === 'Cancelled'), `cancelled: ${apart}`);
  assert.equal(marks.filter((mark) => mark === 'Cancelled').length, apart.length, 'cancelled jobs are among the failures');

  const tenant = page.getByLabel('Filter by tenant');
  await tenant.fill('stark');
  await tenant.press('Enter');
  await bad.waitFor({ state: 'detached' });
  assert.match(page.url(), /tenant=stark/);
  await page.getByText('3 jobs failed, 0 jobs cancelled', { exact: true }).waitFor();
  // The page renews itself while somebody types.
  await tenant.fill('nobody');
  await page.waitForResponse((r) => r.url().includes('/failures?'));
  assert.equal(await tenant.inputValue(), 'nobody');
  await tenant.press('Enter');
  await page.getByRole('heading', { name: 'No failures of this tenant' }).waitFor();
  await tenant.fill('');
  await tenant.press('Enter');
  await bad.getByRole('link').click();
  await page.getByRole('heading', { level: 1, name: /^Job / }).waitFor();

  await at.visit(page, 'failures');
  await page.getByRole('region', { name: `Failures of ${queue}` }).locator('.group', { hasText: 'Bad Gateway' }).waitFor();
  await page.getByLabel('Queue').selectOption(queue);
  await page.getByRole('region', { name: 'Failures by reason' }).waitFor();
});

scenario('retry failures with one reason, and delete those with another', async (page) => {
  await at.visit(page, at.failures(queue));
  const group = (text) => page.locator('.group', { hasText: text });
  await page.getByLabel('Filter by reason').fill('no such words');
  await page.getByRole('heading', { name: 'No matches' }).waitFor();
  await page.getByLabel('Filter by reason').fill('Not Found');
  assert.equal(await page.locator('.group').count(), 1);
  assert.match(page.url(), /reason=Not/);
  await group('Not Found').getByRole('button', { expanded: false }).click();
  await group('Not Found').getByRole('row').nth(1).waitFor();
  assert.equal(await group('Not Found').getByRole('row').count(), 1 + given.failed.notFound);
  await group('Not Found').getByRole('button', { name: 'Retry…' }).click();
  await ask('let calls through');
  await at.confirm(page, new RegExp(`^Retry ${given.failed.notFound} jobs$`), { before: (d) => d.getByText(`${given.failed.notFound} jobs`).first().waitFor() });
  await at.said(page, `Retried ${given.failed.notFound} jobs`);
  await group('Not Found').waitFor({ state: 'detached' });

  await page.getByLabel('Filter by reason').fill('');
  await group('Unprocessable').getByRole('button', { name: 'Delete…' }).click();
  await at.confirm(page, new RegExp(`^Delete ${given.failed.refused} jobs$`), { typed: 'delete', before: (d) => d.getByText(`${given.failed.refused} jobs`).first().waitFor() });
  await group('Unprocessable').waitFor({ state: 'detached' });
  assert.equal(await group('Bad Gateway').count(), 1, 'other failures are gone too');
});

scenario('an action on a group of failures changes no other group', async (page) => {
  await at.visit(page, at.failures(queue));
  const group = page.locator('.group').filter({ has: page.getByText('cancelled by ben: ordered', { exact: true }) });
  await group.getByRole('button', { expanded: false }).click();
  await group.getByRole('row').nth(1).waitFor();
  assert.equal(await group.getByRole('row').count(), 1 + 2, 'jobs of another group are listed in this one');
  await group.getByRole('button', { name: 'Delete…' }).click();
  await at.confirm(page, /^Delete 2 jobs$/, {
    typed: 'delete',
    before: async (d) => {
      await d.getByRole('heading', { name: 'a group of failures: cancelled' }).waitFor();
      await d.getByText('of kind webhook: ‘cancelled by ben: ordered’').or(d.getByText('of kind webhook: cancelled by ben: ordered')).waitFor();
    },
  });
  await group.waitFor({ state: 'detached' });
  assert.equal((await ask('job', { id: jobs.cancelled })).Outcome, 'cancelled', 'the job of another group is gone');
});

scenario('every limiter of the lab', async (page) => {
  await at.visit(page, at.lab());
  const cards = page.locator('.algorithm');
  assert.equal(await cards.count(), 6);
  for (const card of await cards.all()) {
    const name = await card.getByRole('heading').textContent();
    await card.getByRole('button', { name: 'Send request' }).click();
    await card.getByRole('status').getByText(/Let through|Goes in/).waitFor();
    if (name.endsWith('shaping')) await card.getByRole('status').getByText('19 of 20 places left').waitFor();
    for (let i = 0; i < 3; i++) {
      const answer = page.waitForResponse((r) => r.url().endsWith('/take'));
      await card.getByRole('button', { name: 'Burst 10' }).click();
      assert.equal((await (await answer).json()).results.length, 10);
    }
    await card.getByRole('status').getByText('Refused').waitFor();
    await card.locator('pre', { hasText: /RateLimit/i }).waitFor();
    await card.getByRole('button', { name: 'Reset' }).click();
    await card.getByText('Nothing sent yet.').waitFor();
    assert.equal(await card.locator('.let-through i').count(), 0, name);
  }
});

scenario('a refusal by the server is shown in the dialog, which stays open', { allow: [/status of 4\d\d/] }, async (page) => {
  await at.visit(page, at.job(queue, jobs.refusable));
  await page.getByRole('button', { name: 'Cancel…' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Reason').fill('   ');
  assert.equal(await dialog.getByRole('button', { name: 'Cancel the job' }).isDisabled(), true);
  await dialog.getByLabel('Reason').fill('ok');
  await page.route(`${base}/api/v1/**/cancel`, (route) => route.fulfill({
    status: 422, contentType: 'application/problem+json', body: JSON.stringify({ title: 'Invalid', status: 422, detail: '', errors: [{ field: 'reason', reason: 'it is <b>too</b> short' }] }),
  }));
  await dialog.getByRole('button', { name: 'Cancel the job' }).click();
  await dialog.getByRole('alert').filter({ hasText: 'it is <b>too</b> short' }).waitFor();
  assert.equal(await dialog.getByLabel('Reason').inputValue(), 'ok');
});

scenario('a slow change leaves the next dialog open, and its failure is shown', { allow: [/status of 422/] }, async (page) => {
  await at.visit(page, at.job(queue, jobs.refusable));
  const dialog = page.getByRole('dialog');
  for (const [answer, text] of [
    [{ status: 200, json: { jobs: 0 } }, 'Nothing changed'],
    [{ status: 422, contentType: 'application/problem+json', body: JSON.stringify({ title: 'Invalid', detail: 'it is too late' }) }, 'Cancel the job: it is too late'],
  ]) {
    let release;
    const released = new Promise((done) => { release = done; });
    await page.route(`${base}/api/v1/**/cancel`, async (route) => {
      await released;
      await route.fulfill(answer);
    }, { times: 1 });
    await page.getByRole('button', { name: 'Cancel…' }).click();
    await dialog.getByLabel('Reason').fill('ok');
    await dialog.getByRole('button', { name: 'Cancel the job' }).click();
    await dialog.getByRole('button', { name: 'Working…' }).waitFor();
    await dialog.getByRole('button', { name: 'Go back' }).click();
    await dialog.waitFor({ state: 'hidden' });
    await page.getByRole('button', { name: 'Run now…' }).click();
    await dialog.getByLabel('Reason').fill('half a rea');
    release();
    await at.said(page, text);
    assert.equal(await dialog.getByLabel('Reason').inputValue(), 'half a rea');
    await dialog.getByRole('button', { name: 'Go back' }).click();
    await dialog.waitFor({ state: 'hidden' });
  }
});
