import { useEffect, useState } from 'preact/hooks';
import { isAway, send } from './api';
import { num, plural, sentenceCase } from './format';
import type { FailureKey, Pause, Tally } from './types';
import { ConfirmDialog, openDialog, Problem } from './ui/dialog';
import { Skeleton } from './ui/states';
import { say } from './ui/toast';

// Changes that several pages offer. Each dialog first says what the change does.

export interface Scope { tenant?: string; kind?: string }

const what = (queue: string, s: Scope) => (s.tenant !== undefined ? `${s.tenant} in ${queue}` : s.kind !== undefined ? `${s.kind} in ${queue}` : `all of ${queue}`);

/** Selects a duration in seconds; empty means without end. */
export function Length({ value, change, none }: { value: string; change: (seconds: string) => void; none: string }) {
	return (
		<label class="field">For
			<select value={value} onChange={(e) => change(e.currentTarget.value)}>
				<option value="600">10 minutes</option>
				<option value="3600">1 hour</option>
				<option value="14400">4 hours</option>
				<option value="86400">1 day</option>
				<option value="">{none}</option>
			</select>
		</label>
	);
}

function PauseDialog({ queue, scope, waiting }: { queue: string; scope: Scope; waiting: number }) {
	const [length, setLength] = useState('3600');
	const all = scope.tenant === undefined && scope.kind === undefined;
	return (
		<ConfirmDialog
			title={`Pause ${what(queue, scope)}`} verb="Pause" danger={all} typed={all ? queue : undefined}
			consequence={<p>{waiting > 0 ? `${plural(waiting, 'waiting job stays', 'waiting jobs stay')} in place. ` : ''}New jobs are accepted and wait. Calls in flight finish, and deadlines keep running.{all && ' This applies to every tenant of the queue.'}</p>}
			fields={<Length value={length} change={setLength} none="Until resumed" />}
			act={async (reason) => {
				await send<Pause>('POST', ['queues', queue, 'pause'], { ...scope, ...(length ? { for: `${length}s` } : {}), reason });
				say(`Paused ${what(queue, scope)}`);
			}}
		/>
	);
}

export const askPause = (queue: string, scope: Scope, waiting: number): void => openDialog(() => <PauseDialog queue={queue} scope={scope} waiting={waiting} />);

export function askResume(queue: string, scope: Scope): void {
	openDialog(() => (
		<ConfirmDialog
			title={`Resume ${what(queue, scope)}`} verb="Resume"
			consequence={<p>Waiting jobs continue at once, as fast as their limits allow: one call first, then at the rate, without a burst. A pause requested by the provider ends too.</p>}
			act={async (reason) => {
				const { resumed } = await send<{ resumed: boolean }>('POST', ['queues', queue, 'resume'], { ...scope, reason });
				say(resumed ? `Resumed ${what(queue, scope)}` : `${what(queue, scope)} was not paused`);
			}}
		/>
	));
}

/** Describes what a verb did. */
export function tallyText(done: string, t: Tally): string {
	let text = `${done} ${plural(t.jobs, 'job')}`;
	if (t.too_late > 0) text += `; too late for ${num(t.too_late)} held by a worker or already called`;
	if (t.paused > 0) text += `; skipped ${num(t.paused)} that ${t.paused === 1 ? 'is' : 'are'} paused`;
	return text;
}

export interface Filter extends Scope { state?: string; group?: FailureKey }
export type Verb = 'cancel' | 'retry' | 'run' | 'delete';

/** What each verb does, in words for one job or many. */
export const follows: Record<Verb, string> = {
	cancel: 'No call is made. Cancelled jobs are archived with your reason and can be retried on the Failures page.',
	retry: 'Retried jobs wait behind other jobs, with a new count of attempts. All limits still apply.',
	run: 'Sent at once, bypassing all limits and send windows. The permits are still charged, so other jobs wait longer.',
	delete: 'Jobs and payloads are permanently deleted.',
};
export const did: Record<Verb, string> = { cancel: 'Cancelled', retry: 'Retried', run: 'Sent', delete: 'Deleted' };
/** Changing more jobs than this, or deleting more than one, requires typing the verb. */
const many = 100;

function ActionDialog({ queue, verb, filter, of }: { queue: string; verb: Verb; filter: Filter; of: string }) {
	const { group } = filter;
	const [count, setCount] = useState<Tally | null>(null), [error, setError] = useState<unknown>(null);
	const path = ['queues', queue, 'actions'];
	useEffect(() => {
		const abort = new AbortController();
		send<Tally>('POST', path, { verb, ...filter, dry_run: true, reason: 'count' }, abort.signal)
			.then(setCount, (e) => abort.signal.aborted || setError(e));
		return () => abort.abort();
	}, []);
	const n = count?.jobs ?? 0;
	const uncounted = isAway(error); // the partitions that answer can be changed all the same
	return (
		<ConfirmDialog
			title={`${sentenceCase(verb)} ${of}`} verb={count ? `${sentenceCase(verb)} ${plural(n, 'job')}` : sentenceCase(verb)} danger={verb !== 'retry'} ready={n > 0 || uncounted}
			typed={uncounted || n > many || (verb === 'delete' && n > 1) ? verb : undefined}
			consequence={error != null ? <><Problem error={error} />{uncounted && <p>The jobs could not all be counted. {follows[verb]}</p>}</> : count === null ? <Skeleton lines={2} /> : (
				<>
					<p><b>{plural(n, 'job')}</b>{states(count)}{group && <> of kind <bdi>{group.kind}</bdi>: <q><bdi>{reasonOf(group)}</bdi></q></>}. {n > 0 && follows[verb]}</p>
					{count.too_late > 0 && <p>It is too late for {plural(count.too_late, 'more job')}, held by a worker or already called.</p>}
					{count.paused > 0 && <p>{plural(count.paused, 'job is', 'jobs are')} paused and will be skipped.</p>}
				</>
			)}
			act={async (reason) => say(tallyText(did[verb], await send<Tally>('POST', path, { verb, ...filter, dry_run: false, reason })))}
		/>
	);
}

/** Why the jobs of a group failed. */
export const reasonOf = (g: FailureKey): string => g.reason || 'No reason given';

const states = (t: Tally): string => {
	const parts = Object.entries(t.by_state ?? {}).filter(([, n]) => n > 0);
	return parts.length > 1 ? `: ${parts.map(([state, n]) => `${num(n)} ${state}`).join(', ')}` : '';
};

/** Counts the jobs that a verb would change, then asks for confirmation. `of` describes the filter. */
export const askAction = (queue: string, verb: Verb, filter: Filter, of: string): void =>
	openDialog(() => <ActionDialog queue={queue} verb={verb} filter={filter} of={of} />);
