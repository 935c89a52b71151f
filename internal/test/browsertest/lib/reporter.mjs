// What Node's test runner found, a line of JSON for each test, for Go to read.
export default async function* report(events) {
  for await (const { type, data } of events) {
    if (type !== 'test:pass' && type !== 'test:fail') continue;
    if (data.details?.type === 'suite') continue;
    const error = data.details?.error;
    const cause = error?.cause ?? error;
    yield JSON.stringify({
      name: data.name,
      // A test that is skipped or put off has not passed.
      error: type === 'test:fail' ? String(cause?.stack ?? cause)
        : data.skip !== undefined || data.todo !== undefined ? 'it was skipped' : '',
    }) + '\n';
  }
}
