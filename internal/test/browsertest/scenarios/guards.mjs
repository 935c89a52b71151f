// Pages that each break one rule: the harness must report them.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { base, open } from '../lib/scenario.mjs';
import { accessible, fits } from '../lib/rules.mjs';

const caught = {
  'a script in the page': ['inline-script', /^CSP: script-src/],
  'a style in the page': ['inline-style', /^CSP: style-src/],
  'another host': ['other-host', /request to another host: http:\/\/198\.51\.100\.1/],
  'an error that nobody catches': ['throws', /^uncaught: Error: by design/],
  'an error that is logged': ['logs', /^console error: by design/],
  'a browser dialog': ['alert', /browser dialog: by design/],
};
for (const [name, [path, problem]] of Object.entries(caught)) {
  test(name, async () => {
    const tab = await open();
    await tab.page.goto(`${base}/${path}`);
    await tab.page.locator('#done').waitFor({ state: 'attached' });
    await tab.context.close();
    assert.match(tab.problems.join('\n'), new RegExp(problem.source, 'm'));
    assert.throws(tab.check);
  });
}

test('a good page passes', async () => {
  const tab = await open();
  await tab.page.goto(`${base}/good`);
  await tab.page.locator('#done').waitFor({ state: 'attached' });
  await accessible(tab.page);
  await fits(tab.page);
  await tab.page.screenshot();
  tab.check();
  await tab.context.close();
});

test('too little contrast', async () => {
  const tab = await open();
  await tab.page.goto(`${base}/pale`);
  await assert.rejects(accessible(tab.page), /color-contrast/);
  await tab.context.close();
});

test('wider than the window', async () => {
  const tab = await open({ width: 375 });
  await tab.page.goto(`${base}/wide`);
  await assert.rejects(fits(tab.page), /500 px in a window of 375/);
  await tab.context.close();
});
