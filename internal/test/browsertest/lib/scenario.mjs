// A scenario is a test with a tab of the page. Besides its own assertions, it fails if the page
// violates its policy, logs an error, throws, or sends a request to any other machine.
import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { chromium } from 'playwright-core';

export const base = process.env.BASE_URL;
// How long a scenario waits for what is to happen, in ms: a busy machine takes long.
const limit = 180_000;

let connection;
const browser = () => (connection ??= chromium.connect(process.env.BROWSER_WS));
after(async () => (await connection)?.close());

// scenario runs body(page, tab) in its own browser context. Options: theme (light), width (1280),
// height, reducedMotion, allow (patterns of expected console errors), key (of the API, as if it
// had been typed before).
export function scenario(name, options, body) {
  if (typeof options === 'function') [options, body] = [{}, options];
  test(name, async () => {
    const tab = await open(options);
    try {
      await body(tab.page, tab);
      tab.check();
    } catch (error) {
      await explain(name, tab, error);
      throw error;
    } finally {
      // The page may ask again at this moment, and what answers in its place would find no page.
      await tab.page.unrouteAll({ behavior: 'ignoreErrors' }).catch(() => {}); // a page that is gone has none
      await tab.context.close();
    }
  });
}

// open opens a tab and records its problems.
export async function open({ theme = 'light', width = 1280, height = 900, reducedMotion = 'reduce', allow = [], key } = {}) {
  const context = await (await browser()).newContext({
    colorScheme: theme, viewport: { width, height }, reducedMotion, locale: 'en-GB', timezoneId: 'UTC',
  });
  context.setDefaultTimeout(limit);
  const problems = [];
  const requests = [];
  const say = (problem) => {
    if (!allow.some((pattern) => pattern.test(problem))) problems.push(problem);
  };
  await context.exposeBinding('__violated', (_, what) => say(`CSP: ${what}`));
  await context.addInitScript(() => {
    document.addEventListener('securitypolicyviolation', (e) => {
      window.__violated(`${e.effectiveDirective} blocked ${e.blockedURI} ${e.sourceFile ?? ''}:${e.lineNumber} ${e.sample}`);
    });
  });
  // Documents of other origins, such as an empty one, have no session storage.
  if (key) await context.addInitScript((key) => { try { sessionStorage.setItem('headgate-key', key); } catch {} }, key);
  context.on('request', (request) => {
    const url = new URL(request.url());
    requests.push({ at: performance.now(), method: request.method(), url, request });
    if (!['data:', 'blob:', 'about:'].includes(url.protocol) && !['127.0.0.1', 'localhost', '[::1]'].includes(url.hostname)) {
      say(`request to another host: ${url}`);
    }
  });
  context.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) say(`console ${message.type()}: ${message.text()} ${message.location().url}`);
  });
  context.on('weberror', (error) => say(`uncaught: ${error.error().stack ?? error.error()}`));
  context.on('dialog', (dialog) => { say(`browser dialog: ${dialog.message()}`); void dialog.dismiss(); });
  const page = await context.newPage();
  const check = () => assert.deepEqual(problems, [], 'the page has problems');
  return { page, context, problems, requests, check };
}

async function explain(name, { page, problems }, error) {
  const dir = process.env.FAILED_DIR;
  let picture = '';
  if (dir) {
    mkdirSync(dir, { recursive: true });
    picture = join(dir, name.replace(/\W+/g, '-') + '.png');
    await page.screenshot({ path: picture, fullPage: true, timeout: 5000 }).catch(() => { picture = ''; });
  }
  const text = await page.locator('body').ariaSnapshot({ timeout: 2000 }).catch(() => '(no page)');
  error.stack += `\n    at ${page.url()}\n${problems.map((p) => `problem: ${p}\n`).join('')}` +
    `${picture ? `picture: ${picture}\n` : ''}${text.slice(0, 3000)}`;
}

// ask makes Go do what the page cannot, as in await ask('kill the worker').
export async function ask(what, args = {}) {
  const response = await fetch(`${process.env.CONTROL_URL}/${encodeURIComponent(what)}`, { method: 'POST', body: JSON.stringify(args) });
  const text = await response.text();
  assert.ok(response.ok, `${what}: ${text}`);
  return text === '' ? undefined : JSON.parse(text);
}

// given is the data that Go prepared for the scenario.
export const given = JSON.parse(process.env.GIVEN ?? '{}');
