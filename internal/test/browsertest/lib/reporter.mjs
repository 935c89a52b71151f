// Reports the results of Node's test runner to Go: one line of JSON for each test. Other lines are what else it says, such as
// of an error after the end of a test.
export default async function* report(events) {
  for await (const { type, data } of events) {
    if (type === 'test:diagnostic') yield data.message + '\n';
    if (type !== 'test:pass' && type !== 'test:fail') continue;
    if (data.details?.type === 'suite') continue;
    const error = data.details?.error;
    const cause = error?.cause ?? error;
    yield JSON.stringify({
      name: data.name,
      // A test that is skipped or todo has not passed.
      error: type === 'test:fail' ? String(cause?.stack ?? cause)
        : data.skip !== undefined || data.todo !== undefined ? 'it was skipped' : '',
    }) + '\n';
  }
}
