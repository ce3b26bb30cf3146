// A keyboard app's two uses of phonograd: a job that trains, and suggestions. docs/android.md has what else it needs.
package com.example.keyboard

import android.content.Context
import java.io.Closeable
import java.io.File
import org.phonograd.Keyboard
import org.phonograd.ModelFiles
import org.phonograd.TrainingCommand
import org.phonograd.TrainingJob
import org.phonograd.TrainingListener
import org.phonograd.Workspace

/** What to train, and what becomes of the update. The manifest names this class. */
class KeyboardTraining : TrainingJob() {
    // Null: there is no model, no text, or the last update is still there.
    override fun command(): TrainingCommand? = super.command()?.inRound(3, "phone-17")?.with("--codec", "rot-q2")

    override fun onReport(report: TrainingListener.Report) {
        Workspace(this).user.delete()
        // Schedule the upload of report.updatePath here, in a job of its own.
    }
}

/** Suggestions of the model, in int8, and of the user's own words. Nothing here is for the main thread. */
class Suggesting(context: Context, model: File?) : Closeable {
    private val keyboard: Keyboard

    init {
        val workspace = Workspace(context)
        val int8 = File(context.noBackupFilesDir, "int8.safetensors")
        if (!int8.exists()) ModelFiles(workspace.binary).quantize(workspace.artifacts, model, int8)
        keyboard = Keyboard.open(workspace.artifacts, int8, File(context.noBackupFilesDir, "own.words"))
    }

    fun afterWord(word: String): List<String> {
        keyboard.learn(word)
        return keyboard.suggest("", 3).map { it.word }
    }

    override fun close() {
        keyboard.save()
        keyboard.close()
    }
}
