import { useEffect, useState } from 'preact/hooks';
import { send } from './api';
import { num, plural, sentenceCase } from './format';
import type { FailureKey, Pause, Tally } from './types';
import { ConfirmDialog, openDialog, Problem } from './ui/dialog';
import { Skeleton } from './ui/states';
import { say } from './ui/toast';

// Changes that more than one page offers. Each says first what follows from it.

export interface Scope { tenant?: string; kind?: string }

const what = (queue: string, s: Scope) => (s.tenant !== undefined ? `${s.tenant} in ${queue}` : s.kind !== undefined ? `${s.kind} in ${queue}` : `all of ${queue}`);

/** For how long; the values are seconds, empty for until it is taken back. */
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
			consequence={<p>{waiting > 0 ? `${plural(waiting, 'waiting job')} stay where they are.` : 'What comes in waits.'} Jobs are still accepted, calls under way finish, and deadlines pass meanwhile.{all && ' This holds for every tenant of the queue.'}</p>}
			fields={<Length value={length} change={setLength} none="Until somebody resumes" />}
			act={async (reason) => {
				await send<Pause>('POST', ['queues', queue, 'pause'], { ...scope, ...(length ? { seconds: Number(length) } : {}), reason });
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
			consequence={<p>What waits goes on at once, as fast as its limits allow: one call, then the rate, and no burst. A pause that the provider asked for ends too.</p>}
			act={async (reason) => {
				const { resumed } = await send<{ resumed: boolean }>('POST', ['queues', queue, 'resume'], { ...scope, reason });
				say(resumed ? `Resumed ${what(queue, scope)}` : `${what(queue, scope)} was not paused`);
			}}
		/>
	));
}

/** What a verb did, in words. */
export function tallyText(done: string, t: Tally): string {
	let text = `${done} ${plural(t.jobs, 'job')}`;
	if (t.too_late > 0) text += `; too late for ${num(t.too_late)} in a worker’s hands`;
	if (t.paused > 0) text += `; ${num(t.paused)} are paused and were left alone`;
	return text;
}

export interface Filter extends Scope { state?: string; group?: FailureKey }
export type Verb = 'cancel' | 'retry' | 'run' | 'delete';

/** What comes of each, for one job as for many. */
export const follows: Record<Verb, string> = {
	cancel: 'No call is made. What is cancelled is archived with your reason, and can be retried from Failures.',
	retry: 'What is retried goes behind what waits, with its attempts to begin anew. Limits hold as ever.',
	run: 'Sent at once, beyond every limit and send window. What this uses is charged, so that others wait longer.',
	delete: 'What is deleted is forgotten, with all that it carried. This cannot be undone.',
};
export const did: Record<Verb, string> = { cancel: 'Cancelled', retry: 'Retried', run: 'Sent', delete: 'Deleted' };
/** More jobs than this, or any that are forgotten, want a word typed. */
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
	return (
		<ConfirmDialog
			title={`${sentenceCase(verb)} ${of}`} verb={count ? `${sentenceCase(verb)} ${plural(n, 'job')}` : sentenceCase(verb)} danger={verb !== 'retry'} ready={n > 0}
			typed={n > many || (verb === 'delete' && n > 1) ? verb : undefined}
			consequence={error != null ? <Problem error={error} /> : count === null ? <Skeleton lines={2} /> : (
				<>
					<p><b>{plural(n, 'job')}</b>{states(count)}{group && <> of kind <bdi>{group.kind}</bdi>: <q><bdi>{reasonOf(group)}</bdi></q></>}. {n > 0 && follows[verb]}</p>
					{count.too_late > 0 && <p>{plural(count.too_late, 'more is', 'more are')} in a worker’s hands, too late for this.</p>}
					{count.paused > 0 && <p>{plural(count.paused, 'is', 'are')} held by a pause and left alone.</p>}
				</>
			)}
			act={async (reason) => say(tallyText(did[verb], await send<Tally>('POST', path, { verb, ...filter, dry_run: false, reason })))}
		/>
	);
}

/** Why the jobs of a group failed. */
export const reasonOf = (g: FailureKey): string => g.reason || 'No reason was given';

const states = (t: Tally): string => {
	const parts = Object.entries(t.by_state ?? {}).filter(([, n]) => n > 0);
	return parts.length > 1 ? `: ${parts.map(([state, n]) => `${num(n)} ${state}`).join(', ')}` : '';
};

/** Counts first what a verb would change, then asks; `of` says in words what the filter means. */
export const askAction = (queue: string, verb: Verb, filter: Filter, of: string): void =>
	openDialog(() => <ActionDialog queue={queue} verb={verb} filter={filter} of={of} />);
