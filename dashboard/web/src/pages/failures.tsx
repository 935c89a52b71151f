import { useId, useState } from 'preact/hooks';
import { askAction, reasonOf, type Verb } from '../actions';
import { num, plural, relative, time } from '../format';
import { useResource } from '../hooks';
import { tick } from '../live';
import { route, setQuery } from '../router';
import { mayChange } from '../session';
import type { FailureGroup, FailureKey, JobPage, JobRow } from '../types';
import { Badge, Icon, type IconName, type Tone } from '../ui/icon';
import { JobLink, TenantLink } from '../ui/name';
import { EmptyState, Loaded } from '../ui/states';
import { Table } from '../ui/table';

const outcomes: Record<string, { text: string; tone: Tone; icon?: IconName }> = {
	archived: { text: 'Failed', tone: 'bad' },
	unknown: { text: 'Outcome unknown', tone: 'bad', icon: 'warn' },
	expired: { text: 'Expired', tone: 'warn', icon: 'wait' },
	cancelled: { text: 'Cancelled', tone: 'quiet', icon: 'bad' },
};

/** The jobs that ended without success, grouped by reason. */
export function FailuresPage({ queue }: { queue: string }) {
	const failures = useResource<{ groups: FailureGroup[] | null; total: number }>(['queues', queue, 'failures'], undefined, 5);
	const { query } = route.value, text = query.get('reason') ?? '', kind = query.get('kind') ?? '';
	return (
		<Loaded of={failures}>{({ groups, total }) => {
			const all = groups ?? [];
			if (all.length === 0) {
				return <EmptyState title="No failures">Jobs that end without success are kept here until you retry or delete them.</EmptyState>;
			}
			const kinds = [...new Set(all.map((g) => g.kind))].sort();
			const shown = all.filter((g) => (kind === '' || g.kind === kind) && g.reason.toLowerCase().includes(text.toLowerCase()));
			const counted = all.reduce((n, g) => n + g.jobs, 0), jobs = shown.reduce((n, g) => n + g.jobs, 0);
			return (
				<section class="card" aria-label="Failures by reason">
					<header class="filters">
						<label class="search"><span class="vh">Filter by reason</span>
							<input type="search" placeholder="Filter by reason" value={text} onInput={(e) => setQuery({ reason: e.currentTarget.value })} />
						</label>
						{kinds.length > 1 && (
							<label class="switch">Kind
								<select value={kind} onChange={(e) => setQuery({ kind: e.currentTarget.value })}>
									<option value="">All</option>{kinds.map((k) => <option key={k} value={k}>{k}</option>)}
								</select>
							</label>
						)}
						<p class="hint end" role="status">
							{plural(jobs, 'job')} in {plural(shown.length, 'group')}{total > counted && `, from the newest ${num(counted)} of ${num(total)} jobs`}
						</p>
					</header>
					{shown.length === 0 ? <EmptyState title="No matches" icon="idle" />
						: <ul class="groups">{shown.map((g) => <Group key={`${g.outcome} ${g.kind} ${g.reason}`} queue={queue} g={g} />)}</ul>}
				</section>
			);
		}}</Loaded>
	);
}

const keyOf = ({ outcome, kind, reason }: FailureKey): FailureKey => ({ outcome, kind, reason });

function Group({ queue, g }: { queue: string; g: FailureGroup }) {
	const [open, setOpen] = useState(false), id = useId();
	const outcome = outcomes[g.outcome] ?? outcomes['archived']!;
	const ask = (verb: Verb) => askAction(queue, verb, { group: keyOf(g) }, `a group of failures: ${outcome.text.toLowerCase()}`);
	return (
		<li class="group">
			<div class="line">
				<button type="button" class="toggle" aria-expanded={open} aria-controls={open ? id : undefined} onClick={() => setOpen(!open)}>
					<Icon name="next" />
					<span class="reason"><bdi>{(g.jobs === 1 && g.example) || reasonOf(g)}</bdi></span>
				</button>
				<p class="about">
					<Badge tone={outcome.tone} {...(outcome.icon ? { icon: outcome.icon } : {})}>{outcome.text}</Badge>
					<bdi>{g.kind}</bdi><span>newest <time dateTime={g.newest}>{relative(time(g.newest), tick.value)}</time></span>
				</p>
				<p class="count"><b>{num(g.jobs)}</b> <small>{g.jobs === 1 ? 'job' : 'jobs'}</small></p>
				{mayChange.value && (
					<p class="verbs">
						<button type="button" onClick={() => ask('retry')}>Retry…</button>
						<button type="button" class="risky" onClick={() => ask('delete')}>Delete…</button>
					</p>
				)}
			</div>
			{open && <div id={id} class="inside">{g.example && <p class="hint">Example: <bdi>{g.example}</bdi></p>}<Jobs queue={queue} g={g} /></div>}
		</li>
	);
}

/** The jobs of a group, newest first, with a button to show more. */
function Jobs({ queue, g }: { queue: string; g: FailureGroup }) {
	const [limit, setLimit] = useState(20);
	const page = useResource<JobPage>(['queues', queue, 'jobs'], { state: 'archived', group: JSON.stringify(keyOf(g)), limit });
	return (
		<Loaded of={page} lines={3}>{({ jobs, next }) => (
			<>
				<Table<JobRow> caption={`Jobs that failed with: ${reasonOf(g)}`} rows={jobs} id={(r) => r.id} busy={page.loading} columns={[
					{ label: 'Job', cell: (r) => <JobLink queue={queue} id={r.id} /> },
					{ label: 'Tenant', cell: (r) => <TenantLink queue={queue} tenant={r.tenant} /> },
					{ label: 'Ended', cell: (r) => r.at && relative(time(r.at), tick.value) },
					{ label: 'Attempts', figure: true, cell: (r) => num(r.attempt) },
					{ label: 'Reason', cell: (r) => <bdi class="long">{r.reason}</bdi> },
				]} />
				{next && (limit < most ? <p class="further"><button type="button" onClick={() => setLimit(most)}>Show more</button></p> : <p class="further hint">Only the newest {num(most)} are shown.</p>)}
			</>
		)}</Loaded>
	);
}

/** The API returns at most this many jobs at once. */
const most = 200;
