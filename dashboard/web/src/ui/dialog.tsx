import { signal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { ApiError } from '../api';
import { say } from './toast';

// One dialog at a time, opened from anywhere.

const shown = signal<(() => ComponentChildren) | null>(null);

export function openDialog(content: () => ComponentChildren): void {
	shown.value = content;
}
export function closeDialog(): void {
	shown.value = null;
}

export function DialogHost() {
	const dialog = useRef<HTMLDialogElement>(null);
	const closed = useRef(0); // how often we closed it, without a close event so far
	const opened = useRef<typeof shown.value>(null); // the content that the browser shows, or showed last
	const content = shown.value;
	useEffect(() => {
		const d = dialog.current!;
		if (content) {
			opened.current = content;
			if (!d.open) d.showModal(); // the browser keeps the focus inside and restores it at the end
		}
		if (!content && d.open) {
			closed.current++;
			d.close();
		}
	}, [content]);
	// The close event comes later, when another dialog may already be open or about to open.
	const reported = (e: Event) => {
		if (closed.current > 0) closed.current--;
		else if (!(e.currentTarget as HTMLDialogElement).open && shown.value === opened.current) closeDialog();
	};
	return <dialog ref={dialog} aria-labelledby="dialog-title" onClose={reported}>{content?.()}</dialog>;
}

interface Confirmation {
	title: string;
	/** What the change does, in a sentence with numbers. */
	consequence: ComponentChildren;
	/** The text of the button: a verb and its object. */
	verb: string;
	danger?: boolean;
	/** A word to be typed, for changes that are large or cannot be undone. */
	typed?: string | undefined;
	/** More fields, between the consequence and the reason. */
	fields?: ComponentChildren;
	ready?: boolean;
	/** Makes the change; an error is shown in the dialog, which stays open, or in a message if somebody has closed it. */
	act: (reason: string) => Promise<void>;
}

/** Shows what a change does, asks for a reason, and for a typed word if the change is large. */
export function ConfirmDialog({ title, consequence, verb, danger, typed, fields, ready = true, act }: Confirmation) {
	const [reason, setReason] = useState(''), [word, setWord] = useState('');
	const [busy, setBusy] = useState(false), [error, setError] = useState<unknown>(null);
	const id = useId();
	const ok = ready && !busy && reason.trim() !== '' && (typed === undefined || word === typed);
	const submit = async (e: Event) => {
		e.preventDefault();
		if (!ok) return;
		setBusy(true);
		setError(null);
		// Somebody can close the dialog, and open another one, before the change is made.
		const mine = shown.value, open = () => shown.value === mine;
		try {
			await act(reason.trim());
			if (open()) closeDialog();
		} catch (e) {
			if (open()) {
				setError(e);
				setBusy(false);
			} else say(`${verb}: ${(e as Error).message}`, true);
		}
	};
	return (
		<form class="confirm" onSubmit={submit}>
			<h2 id="dialog-title">{title}</h2>
			<div class="consequence">{consequence}</div>
			{fields}
			<label class="field" for={id + 'r'}>Reason
				<input id={id + 'r'} value={reason} onInput={(e) => setReason(e.currentTarget.value)} required maxLength={200} autocomplete="off" aria-describedby={id + 'h'} />
			</label>
			<p class="hint" id={id + 'h'}>Recorded in the audit log with your name.</p>
			{typed !== undefined && (
				<label class="field" for={id + 'w'}><span>Type <b><bdi>{typed}</bdi></b> to confirm</span>
					<input id={id + 'w'} value={word} onInput={(e) => setWord(e.currentTarget.value)} autocomplete="off" spellcheck={false} />
				</label>
			)}
			{error != null && <Problem error={error} />}
			<div class="buttons">
				<button type="button" onClick={closeDialog}>Go back</button>
				<button type="submit" class={danger ? 'danger' : 'primary'} disabled={!ok}>{busy ? 'Working…' : verb}</button>
			</div>
		</form>
	);
}

/** An error of the server, field by field. */
export function Problem({ error }: { error: unknown }) {
	const fields = error instanceof ApiError ? error.fields : [];
	return (
		<div class="notice bad" role="alert">
			{fields.length > 0 ? fields.map(({ field, reason }) => <p key={field + reason}><b>{field}</b>: <bdi>{reason}</bdi></p>) : <p><bdi>{(error as Error).message}</bdi></p>}
		</div>
	);
}

export const confirmChange = (c: Confirmation): void => openDialog(() => <ConfirmDialog {...c} />);
