import { useId, useState } from 'preact/hooks';
import { askAction, reasonOf, type Verb } from '../actions';
import { num, plural, relative, time } from '../format';
import { useResource } from '../hooks';
import { tick } from '../live';
import { href, route, setQuery } from '../router';
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

/** The failures of one queue, or with several queues the failures of each. */
export function FailuresPage({ queues }: { queues: string[] }) {
	const { query } = route.value;
	const [typed, setTyped] = useState<string | null>(null); // of a tenant's name that is not complete; updates of the page leave it
	return (
		<div class="stack">
			<form class="card filters" role="search" onSubmit={(e) => e.preventDefault()}>
				<label class="search"><span class="vh">Filter by reason</span>
					<input type="search" placeholder="Filter by reason" value={query.get('reason') ?? ''} onInput={(e) => setQuery({ reason: e.currentTarget.value })} />
				</label>
				<label class="search"><span class="vh">Filter by tenant</span>
					<input type="search" placeholder="Tenant (full name)" value={typed ?? query.get('tenant') ?? ''} maxLength={128} autocomplete="off" spellcheck={false}
						onInput={(e) => setTyped(e.currentTarget.value)}
						onChange={(e) => {
							setTyped(null);
							setQuery({ tenant: e.currentTarget.value });
						}} />
				</label>
			</form>
			{queues.map((queue) => <Failures key={queue} queue={queue} titled={queues.length > 1} />)}
		</div>
	);
}

/** The jobs of a queue that ended without success, grouped by reason; cancelled jobs come last. */
function Failures({ queue, titled }: { queue: string; titled: boolean }) {
	const { query } = route.value, text = query.get('reason') ?? '', kind = query.get('kind') ?? '', tenant = query.get('tenant') ?? '';
	const failures = useResource<{ groups: FailureGroup[] | null; total: number }>(['queues', queue, 'failures'], { tenant }, 5);
	return (
		<section class="card" aria-label={titled ? `Failures of ${queue}` : 'Failures by reason'}>
			{titled && <header><h2><a href={href('queues', queue, 'failures')}><bdi>{queue}</bdi></a></h2></header>}
			<Loaded of={failures}>{({ groups, total }) => {
				const all = groups ?? [];
				if (all.length === 0) {
					return tenant ? <EmptyState title="No failures of this tenant" icon="idle">Queue <bdi>{queue}</bdi> has no failed jobs of tenant <bdi>{tenant}</bdi>.</EmptyState>
						: <EmptyState title="No failures">Failed and cancelled jobs are kept here until you retry or delete them.</EmptyState>;
				}
				const kinds = [...new Set(all.map((g) => g.kind))].sort();
				const shown = all.filter((g) => (kind === '' || g.kind === kind) && g.reason.toLowerCase().includes(text.toLowerCase()));
				const cancelled = shown.filter((g) => g.outcome === 'cancelled'), failed = shown.filter((g) => g.outcome !== 'cancelled');
				const count = (of: FailureGroup[]) => plural(of.reduce((n, g) => n + g.jobs, 0), 'job');
				const list = (of: FailureGroup[]) => <ul class="groups">{of.map((g) => <Group key={`${g.outcome} ${g.kind} ${g.reason}`} queue={queue} tenant={tenant} g={g} />)}</ul>;
				return (
					<>
						<header class="filters">
							{kinds.length > 1 && !titled && (
								<label class="switch">Kind
									<select value={kind} onChange={(e) => setQuery({ kind: e.currentTarget.value })}>
										<option value="">All</option>{kinds.map((k) => <option key={k} value={k}>{k}</option>)}
									</select>
								</label>
							)}
							<p class="hint end" role="status">
								{count(failed)} failed, {count(cancelled)} cancelled{!tenant && total >= grouped && `, from the newest ${num(grouped)} jobs`}
							</p>
						</header>
						{shown.length === 0 && <EmptyState title="No matches" icon="idle" />}
						{failed.length > 0 && list(failed)}
						{cancelled.length > 0 && <>{titled ? <h3>Cancelled</h3> : <h2>Cancelled</h2>}{list(cancelled)}</>}
					</>
				);
			}}</Loaded>
		</section>
	);
}

/** The API groups at most this many jobs. */
const grouped = 10_000;

const keyOf = ({ outcome, kind, reason }: FailureKey): FailureKey => ({ outcome, kind, reason });

function Group({ queue, tenant, g }: { queue: string; tenant: string; g: FailureGroup }) {
	const [open, setOpen] = useState(false), id = useId();
	const outcome = outcomes[g.outcome] ?? outcomes['archived']!;
	const ask = (verb: Verb) => askAction(queue, verb, { group: keyOf(g), ...(tenant && { tenant }) }, `a group of failures: ${outcome.text.toLowerCase()}${tenant && `, of ${tenant}`}`);
	return (
		<li class="group">
			<div class="line">
				<button type="button" class="toggle" aria-expanded={open} aria-controls={open ? id : undefined} onClick={() => setOpen(!open)}>
					<Icon name="next" />
					<span class="reason"><bdi>{(g.jobs === 1 && g.example) || reasonOf(g)}</bdi></span>
				</button>
				<p class="about">
					<Badge tone={outcome.tone} {...(outcome.icon ? { icon: outcome.icon } : {})}>{outcome.text}</Badge>
					<bdi>{g.kind}</bdi><span>{plural(g.tenants, 'tenant')}</span><span>newest <time dateTime={g.newest}>{relative(time(g.newest), tick.value)}</time></span>
					<span>for example <JobLink queue={queue} id={g.job} /></span>
				</p>
				<Hours counts={g.hours} />
				<p class="count"><b>{num(g.jobs)}</b> <small>{g.jobs === 1 ? 'job' : 'jobs'}</small></p>
				{mayChange.value && (
					<p class="verbs">
						<button type="button" onClick={() => ask('retry')}>Retry…</button>
						<button type="button" class="risky" onClick={() => ask('delete')}>Delete…</button>
					</p>
				)}
			</div>
			{open && <div id={id} class="inside">{g.example && <p class="hint">Example: <bdi>{g.example}</bdi></p>}<Jobs queue={queue} tenant={tenant} g={g} /></div>}
		</li>
	);
}

/** A line of the jobs that failed in each of the last 24 hours. */
function Hours({ counts }: { counts: number[] }) {
	const most = Math.max(1, ...counts);
	const points = counts.map((n, i) => `${i * 4 + 2},${20 - (n / most) * 18}`).join(' ');
	const label = `Last 24 hours: ${plural(counts.reduce((a, b) => a + b, 0), 'job')}, ${num(counts.at(-1) ?? 0)} in the last hour`;
	return <svg class="hours" viewBox="0 0 96 22" role="img" aria-label={label}><title>{label}</title><polyline points={points} /></svg>;
}

/** The jobs of a group, newest first, with a button to show more. */
function Jobs({ queue, tenant, g }: { queue: string; tenant: string; g: FailureGroup }) {
	const [limit, setLimit] = useState(20);
	const page = useResource<JobPage>(['queues', queue, 'jobs'], { state: 'archived', tenant, group: JSON.stringify(keyOf(g)), limit });
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
