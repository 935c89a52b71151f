// The Chromium that all scenarios share. It prints its address, and ends when its standard input
// is closed: with the test, however that ends.
import process from 'node:process';
import { chromium } from 'playwright-core';

const server = await chromium.launchServer({
  executablePath: process.env.CHROMIUM,
  headless: true,
  args: [
    '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync',
    // Only names of this machine are resolved.
    '--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost',
  ],
}).catch((error) => {
  console.log(JSON.stringify({ error: String(error) }));
  process.exit(1);
});
console.log(JSON.stringify({ ws: server.wsEndpoint() }));
for await (const _ of process.stdin);
await server.close();
