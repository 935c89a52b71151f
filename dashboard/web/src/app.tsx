import { useEffect, useRef } from 'preact/hooks';
import { connection, queueNames, queues, redisError, silent } from './live';
import { go, href, route } from './router';
import { KeyDialog, mayChange, session, signOut, useSession } from './session';
import { theme, type Theme } from './theme';
import { DialogHost } from './ui/dialog';
import { Badge, Icon, type IconName } from './ui/icon';
import { SearchButton } from './ui/search';
import { AwayBanner, Boundary, EmptyState, ErrorState, Skeleton } from './ui/states';
import { Toasts } from './ui/toast';
import { ApiError } from './api';
import { Changes } from './pages/activity';
import { ConformancePage } from './pages/conformance';
import { FailuresPage } from './pages/failures';
import { JobPage } from './pages/job';
import { LabPage } from './pages/lab';
import { LimitsPage } from './pages/limits';
import { NowPage } from './pages/now';
import { ProvidersPage } from './pages/providers';
import { TenantPage } from './pages/tenant';
import { TenantsPage } from './pages/tenants';
import { TrialPage } from './pages/trial';
import { Fleet, WorkersPage } from './pages/workers';

interface Place { title: string; area: string; queue?: string; page: preact.ComponentChildren }

function placeOf(path: string[], fallback: string | undefined): Place {
	const [first, queue, what, id] = path;
	if (first === undefined) return { title: 'Now', area: 'now', page: <NowPage /> };
	if (first === 'providers') return { title: 'Providers', area: 'providers', page: <ProvidersPage /> };
	if (first === 'activity') return { title: 'Activity', area: 'activity', page: <Changes /> };
	if (first === 'workers') return { title: 'Workers', area: 'workers', page: <WorkersPage /> };
	if (first === 'lab') return { title: 'Lab', area: 'lab', page: <LabPage /> };
	if (first === 'queues' && queue !== undefined) {
		const key = `${queue}/${id}`;
		if (what === undefined) return { title: queue, area: 'now', queue, page: <NowPage queue={queue} /> };
		if (what === 'tenants' && id !== undefined) return { title: id, area: 'tenants', queue, page: <TenantPage key={key} queue={queue} tenant={id} /> };
		if (what === 'tenants') return { title: 'Tenants', area: 'tenants', queue, page: <TenantsPage key={queue} queue={queue} /> };
		if (what === 'jobs' && id !== undefined) return { title: `Job ${id}`, area: 'failures', queue, page: <JobPage key={key} queue={queue} id={id} /> };
		if (what === 'failures') return { title: 'Failures', area: 'failures', queue, page: <FailuresPage key={queue} queues={[queue]} /> };
		if (what === 'conformance') return { title: 'Conformance', area: 'limits', queue, page: <ConformancePage key={queue} queue={queue} /> };
		if (what === 'trial') return { title: 'Try limits', area: 'limits', queue, page: <TrialPage key={queue} queue={queue} /> };
		if (what === 'limits') return { title: 'Limits', area: 'limits', queue, page: <LimitsPage key={queue} queue={queue} /> };
	}
	if (first === 'failures' && queueNames.value.length > 0) return { title: 'Failures', area: 'failures', page: <FailuresPage queues={queueNames.value} /> };
	// An area without a queue: use the queue shown last, or the first one.
	if (first === 'tenants' || first === 'failures' || first === 'limits') {
		const title = first[0]!.toUpperCase() + first.slice(1);
		return { title, area: first, page: fallback === undefined ? <NoQueueYet /> : <Forward to={href('queues', fallback, first)} /> };
	}
	return { title: 'Not found', area: '', page: <ErrorState error={new ApiError(404, '', 'This page does not exist.')} /> };
}

function Forward({ to }: { to: string }) {
	useEffect(() => location.replace(to), [to]);
	return <Skeleton />;
}

function NoQueueYet() {
	if (queues.value === null) return <Skeleton />;
	return <EmptyState title="No queue yet" icon="idle">A queue appears once its limits are published or a job is enqueued.</EmptyState>;
}

const areas = ['tenants', 'failures', 'limits', 'conformance', 'trial'];

export function App() {
	useSession();
	const { path } = route.value;
	const names = queueNames.value, last = useRef<string | undefined>(undefined);
	const place = placeOf(path, last.current ?? names[0]);
	if (place.queue !== undefined) last.current = place.queue;
	const heading = useRef<HTMLHeadingElement>(null), where = path.join('/'), first = useRef(true);
	// Screen readers announce the new page by its title and by the focus.
	useEffect(() => {
		document.title = `${place.title}${place.queue !== undefined && place.title !== place.queue ? ` · ${place.queue}` : ''} · Headgate`;
		if (!first.current) {
			heading.current?.focus();
			scrollTo(0, 0);
		}
		first.current = false;
	}, [where]);
	const to = (area: string) => (last.current === undefined ? href(area) : href('queues', last.current, area));
	const link = (area: string, text: string, at: string) => <li key={area}><a href={at} aria-current={place.area === area ? 'page' : undefined}>{text}</a></li>;
	const inQueue = place.queue !== undefined && areas.includes(path[2] ?? '');
	return (
		<>
			<a class="skip" href="#main" onClick={(e) => (e.preventDefault(), heading.current?.focus())}>Skip to content</a>
			<header class="top">
				<a class="brand" href="#/" aria-label="Headgate home"><svg viewBox="0 0 20 20" aria-hidden="true"><path d="M4 2v16M16 2v16M4 7h12" /><path class="flow" d="M8 12v5M12 12v5" /></svg>Headgate</a>
				<nav aria-label="Main"><ul>
					{link('now', 'Now', '#/')}{link('tenants', 'Tenants', to('tenants'))}{link('workers', 'Workers', '#/workers')}{link('providers', 'Providers', '#/providers')}
					{link('failures', 'Failures', to('failures'))}{link('limits', 'Limits', to('limits'))}{link('activity', 'Activity', '#/activity')}{link('lab', 'Lab', '#/lab')}
				</ul></nav>
				<div class="corner"><SearchButton /><Fleet /><Connection /><ReadOnly /><ThemeSwitch /><Who /></div>
			</header>
			<AwayBanner />
			<main id="main">
				<div class="heading">
					<h1 ref={heading} tabIndex={-1}><bdi class="name">{place.title}</bdi></h1>
					{inQueue && <QueueSwitch queue={place.queue!} area={path[2]!} names={names} />}
					{path[0] === 'failures' && names.length > 0 && <QueueSwitch queue="" area="failures" names={names} />}
				</div>
				<Boundary key={where}>{place.page}</Boundary>
			</main>
			<Toasts />
			<DialogHost />
			<KeyDialog />
		</>
	);
}

function QueueSwitch({ queue, area, names }: { queue: string; area: string; names: string[] }) {
	const options = queue === '' || names.includes(queue) ? names : [queue, ...names];
	return (
		<label class="switch">Queue
			<select value={queue} onChange={(e) => go(e.currentTarget.value ? href('queues', e.currentTarget.value, area) : href(area))}>
				{area === 'failures' && <option value="">All</option>}
				{options.map((n) => <option key={n} value={n}>{n}</option>)}
			</select>
		</label>
	);
}

const words = { live: 'Live', connecting: 'Connecting', away: 'Reconnecting', paused: 'Not live' } as const;

function Connection() {
	const state = connection.value;
	if (state === 'live' && silent.value) return <Badge tone="warn">No updates</Badge>;
	if (state === 'live' && redisError.value !== null) return <Badge tone="warn">No Redis</Badge>;
	return <Badge tone={state === 'live' ? 'good' : state === 'away' ? 'warn' : 'quiet'} icon={state === 'live' ? 'ok' : 'wait'}>{words[state]}</Badge>;
}

function ReadOnly() {
	if (!session.value || mayChange.value) return null;
	return <Badge tone="quiet" icon="hold">Read only</Badge>;
}

const themes: Record<Theme, { next: Theme; icon: IconName }> = {
	system: { next: 'light', icon: 'auto' }, light: { next: 'dark', icon: 'sun' }, dark: { next: 'system', icon: 'moon' },
};

function ThemeSwitch() {
	const { next, icon } = themes[theme.value];
	return <button type="button" class="icon-button" onClick={() => (theme.value = next)} aria-label={`Colours: ${theme.value}. Change to ${next}.`} title={`Colours: ${theme.value}`}><Icon name={icon} /></button>;
}

function Who() {
	const s = session.value;
	if (!s || s.auth !== 'key') return null;
	return <button type="button" class="who" onClick={signOut} title="Remove the key from this tab"><bdi class="name">{s.actor}</bdi><span>Sign out</span></button>;
}
